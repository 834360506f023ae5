// Converted workspaces ("TurboMind model directories"): where their parts are, and what their config says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/core/dtype.h"
#include "lmdeploy/core/json.h"

namespace lmdeploy {

struct WorkspacePaths {
  std::string weights;    // triton_models/weights
  std::string tokenizer;  // triton_models/tokenizer
  std::string config;     // config.ini or config.yaml of the weights
};
/// `path`: a folder with triton_models in it, that folder, or its weights; nothing for any other path. Throws
/// Error(kNotFound | kInvalidData) when there is triton_models, but not exactly one config.
std::optional<WorkspacePaths> find_workspace(const std::string& path);

/// Latent attention; kv_rank 0: there is none.
struct WorkspaceLatent {
  int64_t q_rank = 0, kv_rank = 0, nope_dim = 0, rope_dim = 0, value_dim = 0;
};

/// What the weight files are: their sizes follow from this.
struct WorkspaceModel {
  int64_t heads = 0, kv_heads = 0, head_dim = 0, hidden = 0, vocab = 0;
  int64_t rotary_dim = 0;               // of a head, that turns
  int64_t embedding_rows = 0;           // stored; at least vocab
  std::vector<int64_t> inter, experts;  // of each layer: dense (or shared) inner size, number of experts
  int64_t expert_inter = 0;
  bool attention_bias = false, shared_gate = false;
  WorkspaceLatent latent;
  DType dtype = DType::kF16;         // of the files
  int64_t group_size = 0;            // inputs that share a scale, where linears have 4 bits; 0: they do not
  bool split_ends = false;           // embedding and output are split over the ranks
  std::vector<int64_t> ranks = {1};  // numbers of files over which a tensor may be spread
};

struct WorkspaceConfig {
  /// Of a workspace in our own layout (weight_layout = 1): the weights are a checkpoint of another form.
  bool own_layout = false;
  WorkspaceModel model;  // the rest of the layouts
  JsonObject hub;        // the same in the words of the hub
  /// How the model is to be run: engine options by their names, and "chat_template".
  JsonObject settings;
};

/// `where` begins messages. Throws Error: kInvalidData for values that are missing or wrong, kUnsupported
/// naming a key whose value cannot be honoured, and what to do.
WorkspaceConfig parse_workspace_ini(std::string_view text, const std::string& where);
WorkspaceConfig parse_workspace_yaml(std::string_view text, const std::string& where);
/// Either, by the file's name.
WorkspaceConfig read_workspace_config(const std::string& path);

}  // namespace lmdeploy
