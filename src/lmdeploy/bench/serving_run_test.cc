#include "lmdeploy/bench/serving_run.h"

#include <gtest/gtest.h>

#include "lmdeploy/bench/random_checkpoint.h"
#include "lmdeploy/core/expect_error.h"

namespace lmdeploy {
namespace {

/// A tiny model in an engine on the CPU.
class ServingRunTest : public ::testing::Test {
 protected:
  ServingFigures serve(std::span<const TraceRequest> trace) {
    return serve_trace(*engine_, trace, model_->spec().vocab_size, /*seed=*/1);
  }

  const std::unique_ptr<Kernels> kernels_ = make_cpu_kernels(std::make_shared<ThreadPool>(1));
  const std::unique_ptr<Model> model_ =
      load_model(*make_random_checkpoint("tiny", DType::kBF16, 1), *kernels_, {.max_step_tokens = 72});
  const std::unique_ptr<Engine> engine_ = [&] {
    EngineConfig config;
    config.max_batch_size = 8;
    config.session_len = 100;
    config.num_blocks = 16;
    config.kv_dtype = DType::kF32;
    config.max_prefill_token_num = 64;
    config.max_logit_rows = 8;
    return std::make_unique<Engine>(*model_, *kernels_, config);
  }();
};

TEST_F(ServingRunTest, AllTokensOfAllRequestsAreCounted) {
  const std::vector<TraceRequest> trace = {{.prompt_tokens = 5, .output_tokens = 20},
                                           {.prompt_tokens = 60, .output_tokens = 30},
                                           {.prompt_tokens = 1, .output_tokens = 1}};
  const ServingFigures figures = serve(trace);
  EXPECT_EQ(figures.num_requests, 3);
  EXPECT_EQ(figures.prompt_tokens, 66);
  EXPECT_EQ(figures.output_tokens, 51);
  EXPECT_EQ(figures.preemptions, 0);
  EXPECT_GT(figures.seconds, 0);
  EXPECT_GT(figures.token_gap_s.p50, 0);
  EXPECT_LE(figures.first_token_s.p99, figures.seconds);
  EXPECT_NEAR(figures.requests_per_s() * figures.seconds, 3, 1e-9);
  EXPECT_NEAR(figures.output_tokens_per_s() * figures.seconds, 51, 1e-9);
  EXPECT_NEAR(figures.total_tokens_per_s() * figures.seconds, 117, 1e-9);
}

TEST_F(ServingRunTest, RequestsRunTogether) {
  const std::vector<TraceRequest> trace(24, {.prompt_tokens = 4, .output_tokens = 90});
  EXPECT_EQ(serve(trace).largest_batch, 8);  // of max_batch_size
}

// Latencies count from the arrival, so that an engine with nothing else to do shows none of the wait for it.
TEST_F(ServingRunTest, RequestsArriveWhenTheirTimeHasCome) {
  const std::vector<TraceRequest> trace = {{.arrival_s = 0, .prompt_tokens = 4, .output_tokens = 2},
                                           {.arrival_s = 0.3, .prompt_tokens = 4, .output_tokens = 2}};
  const ServingFigures figures = serve(trace);
  EXPECT_GE(figures.seconds, 0.3);
  EXPECT_LT(figures.first_token_s.p99, 0.25);
  EXPECT_LE(figures.largest_batch, 1);
}

TEST_F(ServingRunTest, ARunAfterAnotherCountsItsOwn) {
  const std::vector<TraceRequest> trace(2, {.prompt_tokens = 3, .output_tokens = 5});
  serve(trace);
  const ServingFigures figures = serve(trace);
  EXPECT_EQ(figures.num_requests, 2);
  EXPECT_EQ(figures.output_tokens, 10);
}

TEST_F(ServingRunTest, AFailedRequestIsAnError) {
  const std::vector<TraceRequest> trace(1, {.prompt_tokens = 300, .output_tokens = 5});
  expect_error(ErrorCode::kInvalidArgument, {"prompt has 300 tokens"}, [&] { serve(trace); });
}

}  // namespace
}  // namespace lmdeploy
