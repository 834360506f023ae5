// Checkpoints to converted workspaces ("TurboMind model directories").
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lmdeploy {

struct ConvertRequest {
  std::string template_name;        // of the chat template, for config.ini
  std::string model_path;           // a checkpoint on disk
  std::string model_format = {};    // what it must be; empty: whatever it is
  std::string tokenizer_path = {};  // a folder or file; empty: beside the weights
  std::string dst_path = "workspace";
  std::string dtype = "auto";  // auto, float16, bfloat16: of weights that are converted
  int64_t tp = 1;              // ranks to split the weights over
  int64_t group_size = 0;      // of 4-bit weights; 0: as the checkpoint says
  std::function<void(int64_t done, int64_t total)> progress = {};  // bytes; what it throws ends the work
};

struct ConvertResult {
  /// Why the weights were kept in the checkpoint's own form; empty: they were converted.
  std::string own_layout_reason;
  /// What stood at dst_path was an older workspace and has been deleted.
  bool replaced = false;
};

/// Writes the folder dst_path, which appears when it is complete. Models that the documented layout can
/// express are converted to it (16-bit weights, split over `tp` ranks); of others the checkpoint's files are
/// kept, with `weight_layout = 1` in config.ini. Throws Error: kInvalidArgument (a request that does not fit
/// the model, a dst_path that is neither new, empty nor an older workspace), and what opening the checkpoint
/// throws.
ConvertResult convert_model(const ConvertRequest& request);

}  // namespace lmdeploy
