#include "backends.h"

#include <filesystem>
#include <map>
#include <memory>

#include "lmdeploy/core/error.h"

namespace lmdeploy::testing {
namespace {

constexpr CpuIsa kIsas[] = {CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvx512};

std::unique_ptr<Kernels> make(const std::string& name) {
  const auto threads = std::make_shared<ThreadPool>(1);
  if (name == "ref") return make_ref_kernels(threads);
  for (const CpuIsa isa : kIsas)
    if (name == cat("cpu_", isa)) return make_cpu_kernels(threads, isa);
  LMD_CHECK(false, "no back end ", name);
}

}  // namespace

std::vector<std::string> backend_names() {
  std::vector<std::string> names = {"ref"};
  for (const CpuIsa isa : kIsas)
    if (cpu_isa_available(isa)) names.push_back(cat("cpu_", isa));
  return names;
}

const Kernels& backend(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Kernels>> made;
  std::unique_ptr<Kernels>& kernels = made[name];
  if (kernels == nullptr) kernels = make(name);
  return *kernels;
}

DType exact_kv_dtype(const Kernels& kernels) { return kernels.activation_dtype(); }

std::string find_fixture(const std::string& name) {
  for (const char* folder : {"/tests/data/models/", "/../shared/data/models/"}) {
    const std::string path = cat(LMDEPLOY_SOURCE_DIR, folder, name);
    if (std::filesystem::exists(path + "/expected.safetensors")) return path;
  }
  return "";
}

}  // namespace lmdeploy::testing
