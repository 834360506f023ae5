// The model-hub client: a model's name becomes the path of a folder with its files, which are downloaded when
// they are not there yet.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "lmdeploy/hub/config.h"

namespace lmdeploy {

/// How far a download has come.
struct HubStatus {
  std::string file;         // at work
  int64_t done_bytes = 0;   // of what has to be downloaded
  int64_t total_bytes = 0;  // an index of shards is fetched before the rest is known
};

/// Called from the thread that called fetch_model().
struct HubHooks {
  /// Now and then, about once a second also when nothing arrives. What it throws ends the download and comes
  /// out of fetch_model(); what has arrived is kept.
  std::function<void(const HubStatus& status)> progress;
  /// One line: the hub cannot be reached and an older copy is used. Unset: it goes to the log.
  std::function<void(const std::string& line)> warn;
  /// Instead of sleeping, for tests.
  std::function<void(std::chrono::milliseconds time)> pause;
};

struct ModelRequest {
  std::string model = {};         // a path, "org/name", or "org/name/file.gguf"
  std::string revision = {};      // branch, tag or commit; empty: the hub's default
  std::string download_dir = {};  // instead of HubConfig::cache_dir
  bool weights = true;            // false: configs and tokenizer only
};

/// The path of the model's files: `model` itself when there is such a path (nothing is asked of any server
/// then); otherwise the folder (or .gguf file) in the hub's cache, after downloading what is missing. Safe to
/// call from several threads and processes at once. Throws Error: kNotFound (no such path and no such model),
/// kIo (network, access, disk), kInvalidData (what the hub sends is wrong), kUnsupported, kInvalidArgument.
std::string fetch_model(const ModelRequest& request, const HubConfig& config, const HubHooks& hooks = {});

/// Whether fetch_model() would ask a hub: no such path, and the text can be a model's name.
bool is_hub_model(const std::string& model);

}  // namespace lmdeploy
