#include "lmdeploy/cli/env_verdict.h"

#include <algorithm>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr size_t kLittleMemoryBytes = size_t{1} << 30;

struct DriverNeed {
  int cuda_major;
  const char*
      release;  // oldest driver that runs programs of that CUDA major version (minor version compatibility)
};
// CUDA Compatibility guide, table "CUDA minor version compatibility".
constexpr DriverNeed kDriverNeeds[] = {{11, "450.80.02"}, {12, "525.60.13"}, {13, "580.65.06"}};

std::string needed_driver(int cuda_major) {
  for (const DriverNeed& need : kDriverNeeds)
    if (need.cuda_major == cuda_major) return cat("driver ", need.release, " or newer");
  return cat("a driver for CUDA ", cuda_major);
}

std::string sm(const VersionPair& capability) { return cat("sm_", capability.major, capability.minor); }

std::string built_archs(const BuildFacts& build) {
  std::string list;
  for (const VersionPair& arch : build.gpu_archs) list += (list.empty() ? "" : ", ") + sm(arch);
  return list;
}

/// Code for sm_80 runs on sm_86 and sm_89, not on sm_90.
bool runs_on(const BuildFacts& build, const VersionPair& capability) {
  const auto compiles_for = [&](const VersionPair& arch) { return capability >= arch; };
  if (std::ranges::any_of(build.ptx_archs, compiles_for)) return true;
  return std::any_of(build.gpu_archs.begin(), build.gpu_archs.end(), [&](const VersionPair& arch) {
    return arch.major == capability.major && arch.minor <= capability.minor;
  });
}

std::string driver_mismatch(const EnvFacts& facts) {
  if (!facts.driver_release) return "";
  const VersionPair need = {facts.build.cuda->major, 0};
  if (facts.driver_cuda && *facts.driver_cuda >= need) return "";
  const std::string found = facts.driver_cuda ? cat(" (CUDA ", *facts.driver_cuda, ")") : "";
  return cat("the NVIDIA driver is too old: found ", *facts.driver_release, found, ", this build uses CUDA ",
             *facts.build.cuda, " and needs ", needed_driver(need.major),
             ": install a newer driver, or run on the CPU "
             "(device_type cpu)");
}

std::string arch_mismatch(const EnvFacts& facts) {
  for (size_t i = 0; i < facts.gpus.size(); ++i) {
    const GpuFacts& gpu = facts.gpus[i];
    if (!gpu.compute_capability || runs_on(facts.build, *gpu.compute_capability)) continue;
    return cat("GPU ", i, " (", gpu.name, ") is ", sm(*gpu.compute_capability), ", this build has ",
               built_archs(facts.build), ": install a build for ", sm(*gpu.compute_capability),
               ", or run on the CPU (device_type cpu)");
  }
  return "";
}

std::string cpu_line(const EnvFacts& facts) {
  return cat("the CPU (", facts.cpu_isa, ", ", facts.num_cpus, " threads, ",
             facts.available_memory_bytes >> 20, " MiB of memory free)");
}

bool has_gpu(const EnvFacts& facts) { return facts.driver_release.has_value() || !facts.gpus.empty(); }

std::string verdict_line(const EnvFacts& facts, const std::string& mismatch) {
  if (facts.model && !facts.model->check.problem.empty())
    return cat("model ", facts.model->name, " does not run here; others run on ", cpu_line(facts));
  if (!mismatch.empty()) return "GPUs cannot be used, models run on " + cpu_line(facts);
  if (facts.build.cuda && has_gpu(facts)) return cat("OK: models run on ", facts.gpus.size(), " GPUs");
  const bool idle_gpu = !facts.build.cuda && has_gpu(facts);
  return "OK: models run on " + cpu_line(facts) +
         (idle_gpu ? "; this build has no CUDA, so the GPUs stay idle" : "");
}

}  // namespace

std::string gpu_mismatch(const EnvFacts& facts) {
  if (!facts.build.cuda) return "";
  const std::string driver = driver_mismatch(facts);
  if (!driver.empty()) return driver;
  const std::string arch = arch_mismatch(facts);
  return arch.empty() && has_gpu(facts) ? facts.cuda_problem : arch;
}

std::string nccl_problem(const EnvFacts& facts) {
  if (!facts.build.cuda || facts.gpus.size() < 2 || facts.libnccl) return "";
  std::string folders;
  for (const std::string& folder : facts.library_folders) folders += (folders.empty() ? "" : ", ") + folder;
  return cat("NCCL not found (libnccl.so.2), looked in ", folders,
             ": needed for --communicator nccl only; install libnccl2");
}

Verdict judge(const EnvFacts& facts) {
  Verdict verdict;
  const auto add = [&](std::string to_do) {
    if (!to_do.empty()) verdict.to_do.push_back(std::move(to_do));
  };
  const std::string mismatch = gpu_mismatch(facts);
  add(mismatch);
  if (facts.shadowing_folder)
    add(cat("in ", *facts.shadowing_folder,
            " Python imports the lmdeploy/ folder there, not the installed package: "
            "start Python in another folder"));
  if (facts.model && !facts.model->check.problem.empty())
    add(cat("model ", facts.model->name, " does not run here: ", facts.model->check.problem));
  verdict.problem = !verdict.to_do.empty();
  add(nccl_problem(facts));
  if (facts.cpu_isa == "portable")
    add("this CPU has neither AVX2 nor AVX-512 (or this build leaves them out): it works, slowly");
  if (facts.available_memory_bytes < kLittleMemoryBytes)
    add(cat("only ", facts.available_memory_bytes >> 20,
            " MiB of memory are free: close programs or choose a small model"));
  verdict.line = verdict_line(facts, mismatch);
  return verdict;
}

}  // namespace lmdeploy
