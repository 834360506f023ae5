#include "lmdeploy/cli/env_facts.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "lmdeploy/bench/proc_files.h"
#include "lmdeploy/cli/build_facts.h"
#include "lmdeploy/cli/child_process.h"
#include "lmdeploy/cli/environment.h"
#include "lmdeploy/cli/python_facts.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/system_memory.h"
#include "lmdeploy/core/thread_pool.h"
#include "lmdeploy/pipeline/device.h"
#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> text_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n\"");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n\"") - begin + 1);
}

/// What follows `separator` in the first line that begins with `key`.
std::optional<std::string> value_in(const std::string& text, const std::string& key, char separator) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(separator);
    if (line.compare(0, key.size(), key) == 0 && at != std::string::npos) return trimmed(line.substr(at + 1));
  }
  return std::nullopt;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::optional<std::string> version_line(const std::vector<std::string>& command) {
  const std::optional<std::string> text = output_of(command);
  if (!text) return std::nullopt;
  return first_line(*text);
}

/// nvcc's version stands in its fourth line: "Cuda compilation tools, release 12.4, V12.4.131".
std::optional<std::string> nvcc_version() {
  const std::optional<std::string> text = output_of({"nvcc", "--version"});
  if (!text) return std::nullopt;
  return value_in(*text, "Cuda compilation tools", ',');
}

std::optional<std::string> find_library(const std::string& name, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders)
    if (fs::exists(fs::path(folder) / name)) return (fs::path(folder) / name).string();
  return std::nullopt;
}

std::vector<std::string> library_folders(const Environment& environment) {
  std::vector<std::string> folders = environment.library_path;
  if (!environment.cuda_home.empty()) folders.push_back(environment.cuda_home + "/lib64");
  for (const char* folder : {"/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu",
                             "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"})
    folders.emplace_back(folder);
  return folders;
}

void gather_machine(EnvFacts& facts) {
  facts.platform = "linux";
  const std::string os = text_of("/etc/os-release").value_or("");
  facts.os = value_in(os, "PRETTY_NAME", '=').value_or("unknown");
  facts.cpu_model = cpu_model();
  facts.cpu_isa = to_string(best_cpu_isa());
  facts.num_cpus = available_cpus();
  const SystemMemory memory = system_memory();
  facts.total_memory_bytes = memory.total_bytes;
  facts.available_memory_bytes = memory.available_bytes;
}

void gather_gpus(const Environment& environment, EnvFacts& facts) {
  if (const std::optional<std::string> version = text_of("/proc/driver/nvidia/version"))
    facts.driver_release = driver_release_in(*version);
  if (facts.driver_release) facts.driver_cuda = cuda_of_driver(*facts.driver_release);
  if (const auto csv = output_of({"nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"}))
    facts.gpus = gpus_in(*csv);
  facts.library_folders = library_folders(environment);
  facts.libcuda = find_library("libcuda.so.1", facts.library_folders);
  facts.libnccl = find_library("libnccl.so.2", facts.library_folders);
  if (!environment.cuda_home.empty()) {
    facts.cuda_home = environment.cuda_home;
  } else if (fs::exists("/usr/local/cuda")) {
    facts.cuda_home = "/usr/local/cuda";
  }
  facts.nvcc = nvcc_version();
  facts.cuda_problem = cuda_status().problem;
  if (!facts.gpus.empty()) facts.gpu_topology = output_of({"nvidia-smi", "topo", "-m"});
}

void gather_python(EnvFacts& facts) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  PythonFacts python = ask_python(python_for(program.parent_path().string()),
                                  {"lmdeploy", "numpy", "torch", "torchvision", "transformers", "gradio",
                                   "fastapi", "pydantic", "triton"});
  facts.python = std::move(python.version_and_path);
  facts.packages = std::move(python.packages);
}

/// Python puts the current folder first when it runs scripts with -m or -c.
std::optional<std::string> shadowing_folder() {
  std::error_code error;
  const fs::path here = fs::current_path(error);
  if (error || !fs::exists(here / "lmdeploy" / "__init__.py", error)) return std::nullopt;
  return here.string();
}

}  // namespace

std::string to_string(const VersionPair& version) { return cat(version.major, ".", version.minor); }

std::optional<std::string> driver_release_in(const std::string& proc_version) {
  std::istringstream words(first_line(proc_version));
  for (std::string word; words >> word;) {
    const bool is_release =
        word.find('.') != std::string::npos &&
        std::all_of(word.begin(), word.end(), [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
    if (is_release) return word;
  }
  return std::nullopt;
}

std::optional<VersionPair> cuda_of_driver(const std::string& release) {
  // Branch and its CUDA version (CUDA Toolkit release notes, table "CUDA Toolkit and Corresponding Driver
  // Versions").
  static const std::map<int, VersionPair> kBranches = {
      {410, {10, 0}}, {418, {10, 1}}, {440, {10, 2}}, {450, {11, 0}}, {455, {11, 1}}, {460, {11, 2}},
      {465, {11, 3}}, {470, {11, 4}}, {495, {11, 5}}, {510, {11, 6}}, {515, {11, 7}}, {520, {11, 8}},
      {525, {12, 0}}, {530, {12, 1}}, {535, {12, 2}}, {545, {12, 3}}, {550, {12, 4}}, {555, {12, 5}},
      {560, {12, 6}}, {565, {12, 7}}, {570, {12, 8}}, {575, {12, 9}}, {580, {13, 0}}};
  int branch = 0;
  std::from_chars(release.data(), release.data() + release.size(), branch);
  auto next = kBranches.upper_bound(branch);
  if (next == kBranches.begin()) return std::nullopt;
  return (--next)->second;
}

std::vector<GpuFacts> gpus_in(const std::string& csv) {
  std::vector<GpuFacts> gpus;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);) {
    const size_t comma = line.rfind(',');
    if (trimmed(line).empty()) continue;
    GpuFacts gpu{trimmed(line.substr(0, comma)), std::nullopt};
    VersionPair capability;
    if (comma != std::string::npos &&
        std::sscanf(line.c_str() + comma + 1, " %d.%d", &capability.major, &capability.minor) == 2)
      gpu.compute_capability = capability;
    gpus.push_back(gpu);
  }
  return gpus;
}

EnvFacts gather_facts(const Environment& environment) {
  EnvFacts facts;
  facts.build = build_facts();
  gather_machine(facts);
  gather_gpus(environment, facts);
  gather_python(facts);
  facts.gcc = version_line({"gcc", "--version"});
  facts.shadowing_folder = shadowing_folder();
  return facts;
}

}  // namespace lmdeploy
