// Which files of a repository an engine needs, by their names.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/hub/names.h"

namespace lmdeploy {

/// Configs, tokenizer and chat template, and the indexes of weights in shards.
std::vector<std::string> small_files(const std::vector<std::string>& files);
/// Whether there is a tokenizer among them.
bool has_tokenizer(const std::vector<std::string>& files);

struct Weights {
  std::vector<std::string> files;
  std::string open;  // the .gguf to open; empty: the folder
};

/// The .gguf that `id` names; else safetensors; else the one .gguf; else pytorch_model.bin. Never anything
/// that holds code. `read` gives the text of an index, one of small_files(). Throws Error: kNotFound (no
/// weights; a shard is missing), kInvalidArgument (several .gguf: lists them), kInvalidData (a bad index).
Weights weight_files(const std::vector<std::string>& files, const ModelId& id,
                     const std::function<std::string(const std::string& file)>& read);

}  // namespace lmdeploy
