#include "backends.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <span>

#include "lmdeploy/core/error.h"
#include "lmdeploy/models/step_runner.h"

namespace lmdeploy::testing {
namespace {

constexpr CpuIsa kIsas[] = {CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvx512};

}  // namespace

std::vector<std::string> backend_names() {
  std::vector<std::string> names = {"ref"};
  for (const CpuIsa isa : kIsas)
    if (cpu_isa_available(isa)) names.push_back(cat("cpu_", isa));
  return names;
}

std::vector<std::string> cuda_names() {
  if (cuda_toolkit_version() == 0) return {};
  return {"cuda_f32", "cuda_f16", "cuda_bf16"};
}

std::unique_ptr<Kernels> make_backend(const std::string& name, int device) {
  const auto threads = std::make_shared<ThreadPool>(1);
  if (name == "ref") return make_ref_kernels(threads);
  for (const CpuIsa isa : kIsas)
    if (name == cat("cpu_", isa)) return make_cpu_kernels(threads, {.isa = isa});
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    if (name == cat("cuda_", dtype)) return make_cuda_kernels(threads, dtype, {.device = device});
  LMD_CHECK(false, "no back end ", name);
}

const Kernels& backend(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Kernels>> made;
  std::unique_ptr<Kernels>& kernels = made[name];
  if (kernels == nullptr) kernels = make_backend(name);
  return *kernels;
}

DType exact_kv_dtype(const Kernels& kernels) { return kernels.activation_dtype(); }

std::string find_fixture(const std::string& name) {
  const char* given = std::getenv("LMDEPLOY_TEST_MODELS");
  const std::string source = LMDEPLOY_SOURCE_DIR;
  for (const std::string& folder : {std::string(given == nullptr ? "" : given), source + "/tests/data/models",
                                    source + "/../shared/data/models"}) {
    const std::string path = cat(folder, "/", name);
    if (!folder.empty() && std::filesystem::exists(path + "/expected.safetensors")) return path;
  }
  return "";
}

Tensor all_logits(Model& model, const Kernels& kernels, const std::vector<int>& ids,
                  const std::vector<size_t>& sizes, std::optional<DType> kv_dtype) {
  const auto count = static_cast<int64_t>(ids.size());
  StepRunner runner(
      model, kernels,
      {.kv_dtype = kv_dtype.value_or(exact_kv_dtype(kernels)), .max_tokens = count, .block_len = 4});
  runner.start(0, count);
  Tensor all(kernels.wide_dtype(), {count, model.spec().head_size()});
  size_t begin = 0;
  for (size_t i = 0; begin < ids.size(); ++i) {
    const size_t size = std::min(sizes[i % sizes.size()], ids.size() - begin);
    const StepRunner::Chunk chunk = {.ids = std::span(ids).subspan(begin, size),
                                     .num_logits = static_cast<int64_t>(size)};
    const ConstTensorView logits = runner.step({&chunk, 1});
    for (int64_t r = 0; r < logits.rows(); ++r)
      for (int64_t c = 0; c < logits.cols(); ++c)
        all.view().set(static_cast<int64_t>(begin) + r, c, logits.at(r, c));
    begin += size;
  }
  return all;
}

}  // namespace lmdeploy::testing
