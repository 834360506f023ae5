#include "lmdeploy/cli/env_report.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {
namespace {

constexpr const char* kNotFound = "Not Found";

std::string or_not_found(const std::optional<std::string>& value) { return value.value_or(kNotFound); }

/// The names under which LMDeploy shows packages.
std::string shown_name(const std::string& package) {
  if (package == "torch") return "PyTorch";
  if (package == "torchvision") return "TorchVision";
  if (package == "lmdeploy") return "lmdeploy (Python package)";
  return package;
}

std::string cuda_build(const BuildFacts& build) {
  if (!build.cuda) return "no";
  std::string text = cat("CUDA ", *build.cuda, ", for");
  for (const VersionPair& arch : build.gpu_archs) text += cat(" sm_", arch.major, arch.minor);
  return text;
}

std::string driver(const EnvFacts& facts) {
  if (!facts.driver_release) return kNotFound;
  return *facts.driver_release + (facts.driver_cuda ? cat(" (CUDA ", *facts.driver_cuda, ")") : "");
}

void add_machine(const EnvFacts& facts, EnvReport& report) {
  report.emplace_back("sys.platform", facts.platform);
  report.emplace_back("OS", facts.os);
  report.emplace_back("CPU", cat(facts.cpu_model, ", ", facts.num_cpus, " threads usable"));
  report.emplace_back("CPU instruction set", facts.cpu_isa);
  report.emplace_back("Memory", cat(facts.total_memory_bytes >> 20, " MiB, ",
                                    facts.available_memory_bytes >> 20, " MiB free"));
}

void add_gpus(const EnvFacts& facts, EnvReport& report) {
  const bool available = facts.build.cuda && !facts.gpus.empty() && gpu_mismatch(facts).empty();
  report.emplace_back("CUDA available", available ? "True" : "False");
  if (facts.build.cuda)
    report.emplace_back("CUDA back end", facts.cuda_problem.empty() ? "usable" : facts.cuda_problem);
  report.emplace_back("NVIDIA driver", driver(facts));
  for (size_t i = 0; i < facts.gpus.size(); ++i) {
    const auto& capability = facts.gpus[i].compute_capability;
    report.emplace_back(
        cat("GPU ", i),
        facts.gpus[i].name + (capability ? cat(" (sm_", capability->major, capability->minor, ")") : ""));
  }
  report.emplace_back("libcuda", or_not_found(facts.libcuda));
  report.emplace_back("NCCL", or_not_found(facts.libnccl));
  report.emplace_back("CUDA_HOME", or_not_found(facts.cuda_home));
  report.emplace_back("NVCC", or_not_found(facts.nvcc));
  report.emplace_back("GCC", or_not_found(facts.gcc));
}

void add_build(const BuildFacts& build, EnvReport& report) {
  report.emplace_back("LMDeploy", build.version + "+" + build.git_hash);
  report.emplace_back("Built with", cat(build.compiler, ", ", build.build_type,
                                        build.sanitizers.empty() ? "" : ", sanitizers " + build.sanitizers));
  report.emplace_back("CUDA build", cuda_build(build));
}

void add_model(const ModelFacts& model, EnvReport& report) {
  const ModelCheck& check = model.check;
  report.emplace_back("Model", model.name);
  report.emplace_back("Model architecture",
                      check.architecture.empty() ? std::string(kNotFound) : check.architecture);
  report.emplace_back("Model runs here", !check.problem.empty()   ? "no"
                                         : check.left_out.empty() ? "yes"
                                                                  : "yes, but");
  for (size_t i = 0; i < check.left_out.size(); ++i)
    report.emplace_back(cat("Model note ", i + 1), check.left_out[i]);
}

std::string architectures() {
  std::string names;
  for (const std::string& name : supported_architectures()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

void add_verdict(const Verdict& verdict, EnvReport& report) {
  for (size_t i = 0; i < verdict.to_do.size(); ++i)
    report.emplace_back(cat("To do ", i + 1), verdict.to_do[i]);
  report.emplace_back("Verdict", verdict.line);
}

std::string as_json(const EnvReport& report) {
  std::string text = "{";
  for (const auto& [key, value] : report)
    text += cat(text.size() > 1 ? ",\n  " : "\n  ", to_json_text(Json(key)), ": ", to_json_text(Json(value)));
  return text + "\n}\n";
}

/// JSON strings are YAML scalars too.
std::string as_yaml(const EnvReport& report) {
  std::string text;
  for (const auto& [key, value] : report)
    text += cat(to_json_text(Json(key)), ": ", to_json_text(Json(value)), "\n");
  return text;
}

}  // namespace

EnvReport make_report(const EnvFacts& facts, const Verdict& verdict) {
  EnvReport report;
  add_machine(facts, report);
  report.emplace_back("Python", or_not_found(facts.python));
  add_gpus(facts, report);
  add_build(facts.build, report);
  for (const auto& [name, version] : facts.packages)
    report.emplace_back(shown_name(name), or_not_found(version));
  report.emplace_back("NVIDIA Topology", or_not_found(facts.gpu_topology));
  report.emplace_back("Model architectures", architectures());
  if (facts.model) add_model(*facts.model, report);
  add_verdict(verdict, report);
  return report;
}

std::string report_text(const EnvReport& report) {
  std::string text;
  for (const auto& [key, value] : report) {
    const bool several_lines = value.find('\n') != std::string::npos;
    text += cat(key, several_lines ? ":\n" : ": ", value, "\n");
  }
  return text;
}

void write_report(const EnvReport& report, const std::string& path) {
  const std::filesystem::path file(path);
  const std::string extension = file.extension().string();
  const bool is_json = extension == ".json";
  if (extension == ".pkl")
    throw Error(ErrorCode::kInvalidArgument,
                cat("--dump-file ", path, ": pickle is Python's own format; use .json or .yml"));
  if (!is_json && extension != ".yml" && extension != ".yaml")
    throw Error(ErrorCode::kInvalidArgument,
                cat("--dump-file ", path, ": the extension must be .json, .yml or .yaml"));
  std::error_code failure;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), failure);
  std::ofstream out(path);
  out << (is_json ? as_json(report) : as_yaml(report));
  if (!out.flush())
    throw Error(ErrorCode::kIo, cat("--dump-file ", path, ": cannot be written: ", std::strerror(errno)));
}

}  // namespace lmdeploy
