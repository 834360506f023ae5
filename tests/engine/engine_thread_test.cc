// The engine with its thread: handles, cancelling, closing, many callers at once.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "core_driver.h"
#include "fake_model.h"
#include "lmdeploy/engine/engine.h"

namespace lmdeploy::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class EngineThread : public ::testing::Test {
 protected:
  void open(const EngineConfig& config) { engine_ = std::make_unique<Engine>(model_, *kernels_, config); }
  /// Reads to the end.
  static RequestOutput drain(RequestHandle& handle) {
    RequestOutput whole;
    while (whole.finish == FinishReason::kNone) {
      std::optional<RequestOutput> output = handle.next(seconds{60});
      if (!output) {
        ADD_FAILURE() << "nothing came for a minute";
        break;
      }
      merge_output(whole, std::move(*output));
    }
    return whole;
  }
  RequestOutput complete(Request request) { return drain(*engine_->submit(std::move(request))); }
  void wait_until_idle() {
    for (int i = 0; i < 60000; ++i) {
      const EngineStats s = engine_->stats();
      if (s.running + s.waiting == 0 && s.finished + s.aborted + s.failed >= num_submitted_) return;
      std::this_thread::sleep_for(milliseconds{1});
    }
    FAIL() << "the engine does not come to rest";
  }

  FakeModel model_;
  std::unique_ptr<Kernels> kernels_ = make_ref_kernels(std::make_shared<ThreadPool>(1));
  std::unique_ptr<Engine> engine_;
  int64_t num_submitted_ = 0;
};

TEST_F(EngineThread, AnswersAndReports) {
  open(small_config());
  const RequestOutput output = complete(request_of(random_ids(1, 9), 12));
  EXPECT_EQ(output.token_ids, model_.generate(random_ids(1, 9), 12));
  EXPECT_EQ(output.prompt_tokens, 9);
  EXPECT_EQ(output.generated_tokens, 12);
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.finished, 1);
  EXPECT_EQ(stats.prompt_tokens, 9);
  EXPECT_EQ(stats.generated_tokens, 12);
  EXPECT_EQ(stats.steps, 12);
  EXPECT_EQ(stats.free_blocks, stats.total_blocks) << "a caller who saw the end sees the blocks free";
}

TEST_F(EngineThread, TimesComeInOrder) {
  EngineConfig config = small_config();
  config.max_batch_size = 1;
  open(config);
  std::atomic<bool> both_are_there = false;
  model_.before_step = [&](const StepInput&) {
    while (!both_are_there) std::this_thread::sleep_for(milliseconds{1});
    std::this_thread::sleep_for(milliseconds{1});
  };
  const auto first = engine_->submit(request_of(random_ids(1, 9), 12));
  const auto second = engine_->submit(request_of(random_ids(2, 9), 12));
  both_are_there = true;
  const RequestTimes a = drain(*first).times, b = drain(*second).times;
  for (const RequestTimes& times : {a, b}) {
    EXPECT_GT(times.enqueued, RequestTimes::Time());
    EXPECT_GE(times.scheduled, times.enqueued);
    EXPECT_GE(times.first_token, times.scheduled + milliseconds{1});
    EXPECT_GE(times.finished, times.first_token + milliseconds{11});
  }
  EXPECT_LT(b.enqueued, a.finished);
  EXPECT_GE(b.scheduled, a.finished) << "it had to wait";
}

TEST_F(EngineThread, StepsAreCountedByTheirTokens) {
  open(small_config());
  complete(request_of(random_ids(1, 9), 4));  // a step of 9 tokens, three of 1
  const StepTokens steps = engine_->stats().step_tokens;
  EXPECT_EQ(steps.sum, 12);
  EXPECT_EQ(steps.counts[0], 3);
  EXPECT_EQ(steps.counts[2], 1);
}

TEST_F(EngineThread, BadRequestsEndAtOnceAndNameTheField) {
  open(small_config());
  const auto message_of = [&](auto change) {
    Request request = request_of({1, 2}, 3);
    change(request);
    const RequestOutput output = complete(request);
    EXPECT_EQ(output.finish, FinishReason::kError);
    EXPECT_EQ(output.error_code, ErrorCode::kInvalidArgument);
    return output.error_message;
  };
  const auto expect_names = [](const std::string& message, std::string_view part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect_names(message_of([](Request& r) { r.input_ids.clear(); }), "input_ids is empty");
  expect_names(message_of([](Request& r) { r.input_ids[1] = 64; }),
               "input_ids[1] is 64; the vocabulary has ids 0 to 63");
  expect_names(message_of([](Request& r) { r.input_ids[0] = -1; }), "input_ids[0] is -1");
  expect_names(message_of([](Request& r) { r.sampling.temperature = -0.5f; }), "temperature is -0.5");
  expect_names(message_of([](Request& r) { r.sampling.temperature = NAN; }), "temperature is nan");
  expect_names(message_of([](Request& r) { r.sampling.top_k = -2; }), "top_k is -2");
  expect_names(message_of([](Request& r) { r.sampling.top_p = 0; }), "top_p is 0");
  expect_names(message_of([](Request& r) { r.sampling.min_p = 1.5f; }), "min_p is 1.5");
  expect_names(message_of([](Request& r) { r.sampling.repetition_penalty = 0; }), "repetition_penalty is 0");
  expect_names(message_of([](Request& r) { r.sampling.logit_bias = {{64, 1.0f}}; }), "logit_bias[0] is 64");
  expect_names(message_of([](Request& r) { r.sampling.bad_words = {{}}; }),
               "bad_words has an item without ids");
  expect_names(message_of([](Request& r) { r.min_new_tokens = -1; }), "min_new_tokens is -1");
  expect_names(message_of([](Request& r) { r.sequence_start = false; }), "session_id is 0");
  expect_names(message_of([](Request& r) { r.logits_processors.emplace_back(); }), "logits_processors");
  expect_names(message_of([](Request& r) { r.input_ids.assign(300, 1); }),
               "prompt has 300 tokens, session holds 256");
  EXPECT_EQ(engine_->stats().failed, 15);
  EXPECT_EQ(complete(request_of({1, 2}, 3)).token_ids, model_.generate({1, 2}, 3)) << "the engine goes on";
}

TEST_F(EngineThread, F53_DroppingTheHandleFreesTheSlotAtOnce) {
  EngineConfig config = small_config();
  config.max_batch_size = 1;
  config.num_blocks = 600;
  config.session_len = 2100;
  open(config);
  for (int i = 0; i < 200; ++i) {
    auto stream = engine_->submit(request_of(random_ids(1, 5), 2000));
    auto queued = engine_->submit(request_of(random_ids(2, 5), 2000));
    for (int chunk = 0; chunk < 3; ++chunk) ASSERT_TRUE(stream->next(seconds{60}).has_value());
    stream.reset();
    queued.reset();
    num_submitted_ += 3;
    ASSERT_EQ(complete(request_of(random_ids(3, 4), 2)).token_ids, model_.generate(random_ids(3, 4), 2));
  }
  wait_until_idle();
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.aborted, 400);
  EXPECT_EQ(stats.finished, 200);
  EXPECT_EQ(stats.free_blocks, stats.total_blocks);
}

TEST_F(EngineThread, CancelEndsWithAbort) {
  open(small_config());
  const auto handle = engine_->submit(request_of(random_ids(1, 5), -1));
  const std::optional<RequestOutput> first = handle->next(seconds{60});
  ASSERT_TRUE(first.has_value());
  handle->cancel();
  handle->cancel();
  // A fast engine may have run to the end of the session before the first look.
  const RequestOutput output = first->finish == FinishReason::kNone ? drain(*handle) : *first;
  EXPECT_TRUE(output.finish == FinishReason::kAbort || output.finish == FinishReason::kLength);
  EXPECT_FALSE(handle->next(milliseconds{0}).has_value()) << "nothing after the last output";
  handle->cancel();
}

TEST_F(EngineThread, ASlowReaderGetsEverythingInOnePiece) {
  open(small_config());
  const auto handle = engine_->submit(request_of(random_ids(1, 5), 40));
  num_submitted_ = 1;
  wait_until_idle();
  const std::optional<RequestOutput> output = handle->next(milliseconds{0});
  ASSERT_TRUE(output.has_value());
  EXPECT_EQ(output->token_ids, model_.generate(random_ids(1, 5), 40));
  EXPECT_EQ(output->finish, FinishReason::kLength);
}

TEST_F(EngineThread, NotifyWakesAReaderThatDoesNotWait) {
  open(small_config());
  const auto handle = engine_->submit(request_of(random_ids(1, 5), 20));
  std::mutex mutex;
  RequestOutput whole;
  std::promise<void> done;
  handle->set_notify([&] {
    const std::lock_guard lock(mutex);
    while (std::optional<RequestOutput> output = handle->next(milliseconds{0})) {
      merge_output(whole, std::move(*output));
      if (whole.finish != FinishReason::kNone) done.set_value();
    }
  });
  ASSERT_EQ(done.get_future().wait_for(seconds{60}), std::future_status::ready);
  const std::lock_guard lock(mutex);
  EXPECT_EQ(whole.token_ids, model_.generate(random_ids(1, 5), 20));
}

TEST_F(EngineThread, NotifySetAfterTheEndIsCalledAtOnce) {
  open(small_config());
  const auto handle = engine_->submit(request_of(random_ids(1, 5), 2));
  num_submitted_ = 1;
  wait_until_idle();
  int calls = 0;
  handle->set_notify([&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST_F(EngineThread, CloseAbortsWhatRunsAndWaits) {
  EngineConfig config = small_config();
  config.max_batch_size = 1;
  config.num_blocks = 4000;
  config.session_len = 4096;
  open(config);
  std::vector<std::unique_ptr<RequestHandle>> handles;
  for (uint64_t i = 0; i < 5; ++i) handles.push_back(engine_->submit(request_of(random_ids(i, 5), -1)));
  ASSERT_TRUE(handles[0]->next(seconds{60}).has_value());
  engine_->close();
  engine_->close();
  for (const auto& handle : handles) EXPECT_EQ(drain(*handle).finish, FinishReason::kAbort);
  EXPECT_EQ(engine_->stats().used_blocks, 0);
  try {
    engine_->submit(request_of({1}, 1));
    FAIL() << "a closed engine takes no request";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kClosed);
  }
  engine_.reset();
  handles[0]->cancel();  // a handle may outlive its engine
}

TEST_F(EngineThread, F55_TheQueueIsBounded) {
  EngineConfig config = small_config();
  config.max_batch_size = 2;
  config.max_queued_requests = 3;
  config.num_blocks = 4000;
  config.session_len = 4096;
  open(config);
  std::vector<std::unique_ptr<RequestHandle>> handles;
  int refused = 0;
  for (uint64_t i = 0; i < 10; ++i) {
    try {
      handles.push_back(engine_->submit(request_of(random_ids(i, 5), -1)));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
      ++refused;
    }
  }
  EXPECT_EQ(refused, 5);
  handles[0]->cancel();
  drain(*handles[0]);
  EXPECT_NO_THROW(handles.push_back(engine_->submit(request_of({1}, 1))))
      << "its place is free as its end is seen";
}

TEST_F(EngineThread, AThrowingModelDoesNotKillTheEngine) {
  open(small_config());
  std::atomic<bool> broken = true;
  model_.before_step = [&](const StepInput&) {
    if (broken) throw Error(ErrorCode::kIo, "cannot read weights");
  };
  const RequestOutput output = complete(request_of(random_ids(1, 5), 3));
  EXPECT_EQ(output.finish, FinishReason::kError);
  EXPECT_EQ(output.error_code, ErrorCode::kIo);
  EXPECT_EQ(output.error_message, "cannot read weights");
  complete(request_of(random_ids(1, 5), 3));
  EXPECT_EQ(engine_->stats().failed_steps_in_a_row, 2);
  broken = false;
  EXPECT_EQ(complete(request_of(random_ids(1, 5), 3)).token_ids, model_.generate(random_ids(1, 5), 3));
  EXPECT_EQ(engine_->stats().failed_steps_in_a_row, 0);
  EXPECT_FALSE(engine_->closed());
  engine_->close();
  EXPECT_TRUE(engine_->closed());
}

TEST_F(EngineThread, ManyCallersAtOnce) {
  EngineConfig config = small_config();
  config.num_blocks = 40;
  config.session_len = 100;
  config.enable_prefix_caching = true;
  open(config);
  std::vector<std::thread> callers;
  std::atomic<int> good = 0;
  for (uint64_t caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&, caller] {
      for (uint64_t i = 0; i < 20; ++i) {
        const std::vector<int> prompt = random_ids(caller * 100 + i, static_cast<int64_t>(3 + i));
        if (i % 5 == 4) {
          const auto dropped = engine_->submit(request_of(prompt, 50));
          dropped->next(milliseconds{1});
          continue;
        }
        Request request = turn_of(1 + caller, prompt, 6, true);
        if (complete(request).token_ids == model_.generate(prompt, 6)) ++good;
        engine_->stats();
        if (i % 3 == 0) engine_->end_session(1 + caller);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(good, 6 * 16);
}

TEST_F(EngineThread, AProcessorCannotUseItsOwnEngine) {
  open(small_config());
  for (const bool closes : {false, true}) {
    Request request = request_of({1, 2}, 3);
    request.logits_processors.push_back([&, closes](auto, auto&) {
      EXPECT_TRUE(engine_->on_own_thread());
      if (closes) engine_->close();
      engine_->submit(request_of({1}, 1));
    });
    const RequestOutput output = complete(std::move(request));
    EXPECT_EQ(output.finish, FinishReason::kError);
    EXPECT_NE(output.error_message.find("wait for itself"), std::string::npos) << output.error_message;
  }
  EXPECT_FALSE(engine_->on_own_thread());
  EXPECT_EQ(complete(request_of({1}, 2)).token_ids, model_.generate({1}, 2));
}

}  // namespace
}  // namespace lmdeploy::testing
