// Opening, closing, cancelling, many threads.
#include <atomic>

#include "fixture.h"

namespace lmdeploy::testing {
namespace {

using LifetimeTest = PipelineTest;

TEST_F(LifetimeTest, F57_CloseAndOpenAnotherOne) {
  write_chain_model(folder());
  for (int i = 0; i < 10; ++i) {
    Pipeline pipeline(config());
    EXPECT_EQ(run_raw(pipeline, "w").text, "xyz");
    pipeline.close();
    pipeline.close();
  }
}

TEST_F(LifetimeTest, F57_UseAfterCloseIsAClearError) {
  write_chain_model(folder());
  Pipeline pipeline(config());
  ChatSession session = pipeline.new_session();
  read_all(*pipeline.chat(session, "hi", {}));
  pipeline.close();
  const auto expect_closed = [&](const std::function<void()>& use) {
    expect_error(ErrorCode::kClosed, {folder().c_str(), "closed"}, use);
  };
  expect_closed([&] { pipeline.submit(std::string("hi"), {}); });
  expect_closed([&] { pipeline.infer({std::string("hi")}, {GenerationConfig()}); });
  expect_closed([&] { pipeline.infer({}, {}); });
  expect_closed([&] { pipeline.chat(session, "hi", {}); });
  expect_closed([&] { pipeline.get_ppl({{1, 2}}); });
  expect_closed([&] { pipeline.new_session(); });
  expect_closed([&] { pipeline.engine(); });
  pipeline.end_session(session);
  EXPECT_EQ(pipeline.session_len(), 4096);
  EXPECT_EQ(pipeline.config().model_path, folder());
}

TEST_F(LifetimeTest, F57_StreamsEndWhenThePipelineCloses) {
  write_chain_model(folder(), {.after_newline = '0'});
  auto pipeline = std::make_unique<Pipeline>(config());
  const auto stream = pipeline->submit(std::string("hi"), new_tokens(4000));
  ChatSession session = pipeline->new_session();
  const auto turn = pipeline->chat(session, "hi", new_tokens(4000));
  ASSERT_TRUE(stream->next(std::chrono::seconds(60)));
  pipeline.reset();
  EXPECT_EQ(read_all(*stream).finish_reason, FinishReason::kAbort);
  EXPECT_EQ(read_all(*turn).finish_reason, FinishReason::kAbort);
}

TEST_F(LifetimeTest, F53_ADroppedStreamFreesItsSlot) {
  write_chain_model(folder(), {.after_newline = '0'});
  PipelineConfig one_slot = config();
  one_slot.max_batch_size = 1;
  Pipeline pipeline(one_slot);
  const int64_t free_blocks = pipeline.engine().stats().free_blocks;
  constexpr int kRounds = 50;
  for (int i = 0; i < kRounds; ++i) {
    const auto running = pipeline.submit(std::string("hi"), new_tokens(2000));
    const auto queued = pipeline.submit(std::string("hi"), new_tokens(2000));
    ASSERT_TRUE(running->next(std::chrono::seconds(60)));
  }
  EXPECT_EQ(run_raw(pipeline, "w").text, "xyz");
  expect_idle(pipeline);
  EXPECT_EQ(pipeline.engine().stats().aborted, 2 * kRounds);
  EXPECT_EQ(pipeline.engine().stats().free_blocks, free_blocks);
}

TEST_F(LifetimeTest, AThrowingPollCancelsEverything) {
  write_chain_model(folder(), {.after_newline = '0'});
  Pipeline pipeline(config());
  const std::vector<Prompt> prompts(12, Prompt(std::string("hi")));
  EXPECT_THROW(
      pipeline.infer(prompts, {new_tokens(3000)}, {}, [](size_t) { throw std::runtime_error("Ctrl-C"); }),
      std::runtime_error);
  expect_idle(pipeline);
  std::vector<size_t> done;
  pipeline.infer(prompts, {new_tokens(3)}, {}, [&](size_t count) { done.push_back(count); });
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), prompts.size());
}

TEST_F(LifetimeTest, F82_ManyThreadsAtOnce) {
  write_chain_model(folder());
  Pipeline pipeline(config());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        const std::string letter(1, static_cast<char>('a' + t));
        const Response response = run_raw(pipeline, letter, new_tokens(2));
        const char want[] = {static_cast<char>('b' + t), static_cast<char>('c' + t), 0};
        if (response.text != want) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(LifetimeTest, ClosingWhileOthersRun) {
  write_chain_model(folder(), {.after_newline = '0'});
  Pipeline pipeline(config());
  std::atomic<bool> started{false};
  std::atomic<int> unexpected{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      try {
        while (true) {
          const Response response = pipeline.infer({std::string("hi")}, {new_tokens(50)}).front();
          if (response.finish_reason != FinishReason::kLength &&
              response.finish_reason != FinishReason::kAbort)
            ++unexpected;
          started = true;
        }
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kClosed) ++unexpected;
      }
    });
  while (!started) std::this_thread::yield();
  pipeline.close();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(unexpected, 0);
}

}  // namespace
}  // namespace lmdeploy::testing
