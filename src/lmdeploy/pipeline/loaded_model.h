// All that a pipeline loads: text side and engine, made in one go from a PipelineConfig.
#pragma once

#include <memory>
#include <vector>

#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder_spec.h"
#include "lmdeploy/pipeline/pipeline.h"
#include "lmdeploy/pipeline/prompt_encoder.h"
#include "lmdeploy/pipeline/request_builder.h"

namespace lmdeploy {

/// What stays readable after close(): small, immutable.
struct ModelInfo {
  PipelineConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;         // nullptr: prompts are ids
  std::shared_ptr<const ChatTemplate> chat_template;  // nullptr without tokenizer
  DecoderSpec spec;
  std::vector<int> eos_ids;
  int64_t session_len = 0;
};

/// Weights and the engine that runs on them. Members are destroyed from the last to the first.
struct Runtime {
  std::unique_ptr<Kernels> kernels;
  std::vector<std::unique_ptr<Kernels>> other_kernels;  // of the ranks after the first
  std::unique_ptr<Model> model;
  std::unique_ptr<Model> draft_model;  // of speculative decoding, or nullptr
  std::unique_ptr<Engine> engine;
};

struct LoadedModel {
  ModelInfo info;
  std::shared_ptr<Runtime> runtime;
};

/// Where the tokenizer of a model is: in a GGUF file itself, beside any other weight file.
std::string tokenizer_path(const std::string& model_path);

/// Throws Error with the path and what to do.
LoadedModel load_pipeline_model(const PipelineConfig& config);
/// The same of a checkpoint that is open already; the tokenizer is looked for at its path.
LoadedModel load_pipeline_model(const PipelineConfig& config, const Checkpoint& checkpoint);

}  // namespace lmdeploy
