// The speed of whole models: `lmdeploy bench model`. Two layers, measured in turn: the forward pass alone,
// and the engine around it with scheduling, sampling and detokenising.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/bench/load_timer.h"
#include "lmdeploy/bench/machine_probe.h"
#include "lmdeploy/bench/measure.h"
#include "lmdeploy/bench/proc_files.h"
#include "lmdeploy/core/dtype.h"
#include "lmdeploy/models/step_work.h"

namespace lmdeploy {

struct ModelSpeedOptions {
  std::string model_path;        // a checkpoint; or
  std::string shape;             // random weights in the shape of a known model,
  DType weights = DType::kBF16;  // of this kind,
  uint64_t seed = 1;             // from this seed
  int64_t prompt = 512;          // tokens; 0: no prefill
  int64_t decode = 128;          // tokens of each sequence; 0: none
  int64_t depth = 0;             // tokens before those
  std::vector<int64_t> batches = {1, 8, 16};
  int num_threads = 0;         // 0: all CPUs that this process may use
  std::string dtype = "auto";  // as PipelineConfig, and so is the next
  std::optional<bool> rounded_activations;
  std::optional<int> quant_policy;
  int rounds = 3;
  int64_t memory_mib = mib_beyond_caches(256);  // that are read to measure the limit
};

/// Tokens a second of each round.
using Samples = std::vector<double>;

struct ModelCase {
  bool prefill = false;
  int64_t batch = 1;
  int64_t tokens = 0;  // of each sequence
  Samples forward, engine;
  StepWork work;                      // of all steps together
  std::vector<MachineLimits> limits;  // beside each sample of `forward`

  double all_tokens() const { return static_cast<double>(batch * tokens); }
  /// Engine to forward pass, by round.
  Spread engine_share() const;
  /// Of the forward pass: operations a second; bytes and operations as a share of the limits beside it.
  Spread ops_per_s() const;
  Spread read_share() const;
  Spread dot_share(DotChain::Numbers numbers) const;

 private:
  template <typename Figure>
  Spread over_rounds(const Figure& figure) const;
};

/// Of the process, once each case has run through the engine.
struct MemoryFigures {
  double weights = 0, kv_pool = 0, buffers = 0;
  double peak_growth = 0;  // of the resident size since before loading
};

struct ModelFigures {
  std::string name, architecture, backend;
  DType kv_dtype = DType::kF16;
  int num_threads = 0;
  DotChain::Numbers numbers = DotChain::Numbers::kF32;  // that most weights are multiplied in
  bool has_tokenizer = false;
  LoadFigures load;
  MemoryFigures memory;
  std::vector<ModelCase> cases;
  double other_cpus = 0;  // that other programs kept busy, on average
};

/// What becomes known, as it does.
struct ModelSpeedHooks {
  std::function<void(const ModelFigures&)> loaded;  // all but the cases
  std::function<void(const ModelFigures&, const ModelCase&)> measured;
};

/// Throws Error as loading does, and kInvalidArgument for options that fit no model.
ModelFigures measure_model(const ModelSpeedOptions& options, const ModelSpeedHooks& hooks = {});

/// The table, line by line.
std::string model_head(const ModelFigures& figures);
std::string case_head();
std::string case_line(const ModelFigures& figures, const ModelCase& c);
/// All figures, each round's among them, to a file that appears when it is complete. Throws Error(kIo).
void write_json(const std::string& path, const ModelFigures& figures);
/// Before minutes of measuring: throws Error(kIo) when the file cannot be written, and kInvalidArgument when
/// it holds anything but such figures, say the model.
void check_json_target(const std::string& path);

}  // namespace lmdeploy
