// What `check_env` knows about this machine and this build.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmdeploy/pipeline/model_check.h"

namespace lmdeploy {

struct Environment;

/// CUDA 12.4 is {12, 4}; compute capability 9.0 is {9, 0}.
struct VersionPair {
  int major = 0;
  int minor = 0;
  auto operator<=>(const VersionPair&) const = default;
};
std::string to_string(const VersionPair& version);

struct GpuFacts {
  std::string name;
  std::optional<VersionPair> compute_capability;  // nothing when nvidia-smi is not there to ask
};

struct BuildFacts {
  std::string version, git_hash;  // hash: 7 digits, or "unknown"
  std::string compiler, build_type;
  std::string sanitizers;              // "" for none
  std::optional<VersionPair> cuda;     // toolkit; nothing: built without CUDA
  std::vector<VersionPair> gpu_archs;  // built for
  std::vector<VersionPair> ptx_archs;  // code that the driver compiles for these and all later ones
};

/// A model that was asked about.
struct ModelFacts {
  std::string name;  // as it was given
  ModelCheck check;
};

struct EnvFacts {
  BuildFacts build;
  std::string platform;            // "linux"
  std::string os;                  // pretty name
  std::string cpu_model, cpu_isa;  // isa: the one that the CPU back end chooses
  int num_cpus = 0;                // that this process may use
  size_t total_memory_bytes = 0, available_memory_bytes = 0;
  std::optional<std::string> driver_release;  // of the NVIDIA kernel module, "535.104.05"
  std::optional<VersionPair> driver_cuda;     // the newest CUDA that this driver runs
  std::vector<GpuFacts> gpus;
  std::string cuda_problem;                     // why the CUDA back end finds no GPU; "" when it finds one
  std::optional<std::string> libcuda, libnccl;  // paths
  std::vector<std::string> library_folders;     // where those were looked for
  std::optional<std::string> cuda_home, nvcc, gcc;                           // nvcc, gcc: their version lines
  std::optional<std::string> gpu_topology;                                   // nvidia-smi topo -m
  std::optional<std::string> python;                                         // version and path
  std::vector<std::pair<std::string, std::optional<std::string>>> packages;  // name, version
  std::optional<ModelFacts> model;
  std::optional<std::string> shadowing_folder;  // holds a lmdeploy/ that Python would import from here
};

EnvFacts gather_facts(const Environment& environment);

/// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 ..." gives "535.104.05".
std::optional<std::string> driver_release_in(const std::string& proc_version);
/// The newest CUDA version of a driver branch; nothing for one older than the table.
std::optional<VersionPair> cuda_of_driver(const std::string& release);
/// Lines "name, 9.0" of nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader.
std::vector<GpuFacts> gpus_in(const std::string& csv);

}  // namespace lmdeploy
