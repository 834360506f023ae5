// The inside of a Pipeline, shared by the files that implement it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lmdeploy/pipeline/loaded_model.h"
#include "lmdeploy/pipeline/pipeline.h"
#include "lmdeploy/pipeline/streams.h"

namespace lmdeploy {

class Pipeline::Impl {
 public:
  explicit Impl(const PipelineConfig& config) : Impl(load_pipeline_model(config)) {}
  explicit Impl(LoadedModel loaded);

  /// What runs on it keeps it alive. Throws Error(kClosed) after close().
  std::shared_ptr<Runtime> runtime() const;
  void close();
  bool on_engine_thread() const;

  const ModelInfo& info() const { return info_; }
  const PromptEncoder& encoder() const { return encoder_; }
  const RequestBuilder& builder() const { return builder_; }
  uint64_t next_session_id() { return next_session_id_++; }

  /// Starts a request of its own, or gives the stream that turns it away.
  std::unique_ptr<ResponseStream> start(Runtime& runtime, std::vector<int> input_ids,
                                        const GenerationConfig& gen_config) const;
  std::unique_ptr<EngineStream> start(Runtime& runtime, PreparedRequest prepared) const;
  /// Says in the log, and to the caller, that the prompt does not fit.
  std::unique_ptr<ResponseStream> reject(size_t num_prompt_tokens) const;

 private:
  const ModelInfo info_;
  const PromptEncoder encoder_;
  const RequestBuilder builder_;
  std::atomic<uint64_t> next_session_id_{1};
  mutable std::mutex mutex_;  // guards runtime_
  std::shared_ptr<Runtime> runtime_;
};

/// A stream gives one answer.
void require_one_choice(const GenerationConfig& gen_config);

}  // namespace lmdeploy
