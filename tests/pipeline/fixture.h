// What the pipeline tests share: a folder for a model, and short ways to run prompts.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "../models/random_llama.h"
#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/pipeline/pipeline.h"
#include "text_models.h"

namespace lmdeploy::testing {

class PipelineTest : public ::testing::Test {
 protected:
  PipelineConfig config() const {
    PipelineConfig pipeline_config;
    pipeline_config.model_path = folder_.path();
    pipeline_config.dtype = "float32";
    pipeline_config.max_batch_size = 8;
    pipeline_config.max_prefill_token_num = 512;
    pipeline_config.num_threads = 1;
    return pipeline_config;
  }
  const std::string& folder() const { return folder_.path(); }

 private:
  TempFolder folder_;
};

inline RunOptions raw_text() {
  RunOptions options;
  options.do_preprocess = false;
  return options;
}

/// Answers to the text as it is.
inline Response run_raw(Pipeline& pipeline, const std::string& text,
                        const GenerationConfig& gen_config = {}) {
  return pipeline.infer({text}, {gen_config}, raw_text()).front();
}

inline GenerationConfig new_tokens(int64_t count) {
  GenerationConfig gen_config;
  gen_config.max_new_tokens = count;
  return gen_config;
}

/// All pieces joined.
inline Response read_all(ResponseStream& stream) {
  Response whole;
  while (!stream.finished()) {
    const std::optional<Response> piece = stream.next(std::chrono::seconds(10));
    if (!piece) throw Error(ErrorCode::kInternal, "no piece within 10 seconds");
    const std::string text = whole.text + piece->text;
    std::vector<int> ids = whole.token_ids;
    ids.insert(ids.end(), piece->token_ids.begin(), piece->token_ids.end());
    whole = *piece;
    whole.text = text;
    whole.token_ids = ids;
  }
  return whole;
}

/// Waits until no request runs or waits, and the engine keeps `num_sessions`.
inline void expect_idle(Pipeline& pipeline, int64_t num_sessions = 0) {
  EngineStats stats;
  for (int i = 0; i < 12000; ++i) {  // a minute
    stats = pipeline.engine().stats();
    if (stats.running + stats.waiting == 0 && stats.sessions == num_sessions) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.sessions, num_sessions);
  EXPECT_EQ(stats.free_blocks + stats.used_blocks + stats.cached_blocks, stats.total_blocks);
}

}  // namespace lmdeploy::testing
