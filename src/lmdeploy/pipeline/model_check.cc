#include "lmdeploy/pipeline/model_check.h"

#include <filesystem>
#include <memory>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/model_plan.h"
#include "lmdeploy/models/registry.h"
#include "lmdeploy/models/spec_check.h"
#include "lmdeploy/pipeline/loaded_model.h"
#include "lmdeploy/text/tokenizer.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

// The config of a model whose weights are not there; "" when there are some, or no config.
std::string lone_config(const fs::path& path) {
  if (path.filename() == "config.json" && fs::is_regular_file(path)) return path.string();
  const fs::path config = path / "config.json";
  if (!fs::is_regular_file(config)) return "";
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string extension = entry.path().extension().string();
    for (const char* weights : {".safetensors", ".bin", ".gguf", ".pt", ".pth"})
      if (extension == weights) return "";
  }
  return config.string();
}

void check_config(const std::string& path, ModelCheck& check) {
  check.left_out.emplace_back("no weights: only the config has been looked at");
  const Json config = read_json_file(path);
  const ConfigReader cfg(config, path);
  check.architecture = cfg.architecture();
  checked_spec(find_family(cfg), cfg);
  if (cfg.get("num_nextn_predict_layers", int64_t{0}) > 0)
    check.left_out.emplace_back("layers for multi-token prediction are not used");
}

void check_weights(const std::string& path, ModelCheck& check) {
  const std::unique_ptr<Checkpoint> checkpoint = open_checkpoint(path);
  check.architecture = ConfigReader(checkpoint->config(), checkpoint->config_path()).architecture();
  check.left_out = checkpoint->left_out();
  const ModelPlan plan = plan_model(*checkpoint, {});
  if (plan.load.num_later > 0)
    check.left_out.push_back(
        cat("layers for multi-token prediction are not used (", plan.load.num_later, " tensors)"));
}

void check_tokenizer(const std::string& path, ModelCheck& check) {
  try {
    Tokenizer::load(tokenizer_path(path));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    check.left_out.push_back(cat("prompts must be token ids: ", error.what()));
  }
}

}  // namespace

ModelCheck check_model(const std::string& path) {
  if (!fs::exists(path)) throw Error(ErrorCode::kNotFound, cat("open ", path, ": no such file or folder"));
  ModelCheck check;
  try {
    const std::string config = lone_config(path);
    config.empty() ? check_weights(path, check) : check_config(config, check);
    check_tokenizer(config.empty() ? path : fs::path(config).parent_path().string(), check);
  } catch (const Error& error) {
    check.problem = error.what();
  }
  return check;
}

}  // namespace lmdeploy
