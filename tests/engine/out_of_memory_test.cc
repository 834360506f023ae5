// Memory runs out in the engine: every request still gets exactly one last output, and the engine goes on.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <tuple>

#include "core_driver.h"
#include "drawing_kernels.h"
#include "fake_model.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/core/random.h"

namespace {

constexpr int64_t kNever = int64_t{1} << 62;

// Allocations of this thread until they begin to fail, and how many then fail.
thread_local int64_t allocations_left = kNever, failures_left = 0;

bool fails_now() {
  if (allocations_left > 0) return --allocations_left, false;
  if (failures_left == 0) return false;
  --failures_left;
  return true;
}

}  // namespace

// Not inline: g++ 12 would see malloc() meet operator delete.
[[gnu::noinline]] void* operator new(size_t size) {
  void* memory = fails_now() ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace lmdeploy::testing {
namespace {

/// How many allocations fail; the model; whether steps go ahead of their tokens.
class OutOfMemory : public ::testing::TestWithParam<std::tuple<int64_t, GroupCase, bool>> {
 protected:
  void SetUp() override { set_log_level(LogLevel::kCritical); }  // every failure is logged

  /// One step of `core` in which allocation number `first` and the next ones fail.
  static void step(EngineCore& core, Commands& commands, int64_t first, int64_t count) {
    allocations_left = first;
    failures_left = count;
    try {
      core.step(commands);
    } catch (const std::bad_alloc& error) {
      core.fail_all(error, commands);
    }
    core.deliver();
    allocations_left = kNever;
    core.check_invariants();
  }

  std::unique_ptr<Kernels> ref_ = make_ref_kernels(std::make_shared<ThreadPool>(1));
  DrawingKernels drawing_;
};

struct Reader {
  std::shared_ptr<Channel> channel = std::make_shared<Channel>();
  RequestOutput output;
  int num_last = 0;
  void read() {
    while (auto piece = channel->next(std::chrono::milliseconds{0})) {
      num_last += piece->finish == FinishReason::kNone ? 0 : 1;
      merge_output(output, std::move(*piece));
    }
  }
};

// Alone, in sessions that begin, go on and end, cancelled, and more than there are places for.
Commands some_traffic(std::vector<Reader>& readers, Rng& rng, uint64_t& last_id) {
  Commands commands;
  for (uint64_t count = rng.below(5); count > 0; --count) {
    const uint64_t session = rng.below(4);
    Request request = session == 0 ? request_of(random_ids(rng.below(1000), 6), 3)
                                   : turn_of(session, random_ids(rng.below(1000), 6), 3, rng.below(2) == 0);
    readers.emplace_back();
    commands.emplace_back(SubmitCommand{++last_id, std::move(request), readers.back().channel});
  }
  if (rng.below(4) == 0) commands.emplace_back(CancelCommand{last_id - rng.below(3)});
  if (rng.below(6) == 0) commands.emplace_back(EndSessionCommand{1 + rng.below(3)});
  return commands;
}

TEST_P(OutOfMemory, EachRequestEndsOnceAndTheEngineGoesOn) {
  const auto& [num_failures, groups, ahead] = GetParam();
  EngineConfig config = small_config();
  config.max_batch_size = 3;
  config.max_sessions = 2;
  config.enable_prefix_caching = true;
  FakeModel model({.windows = groups.windows});
  if (ahead) model.drawing = &drawing_;
  const Kernels& kernels = ahead ? static_cast<const Kernels&>(drawing_) : *ref_;
  EngineCore core(model, kernels, resolve_config(config, model, 1 << 26));
  std::vector<Reader> readers;
  int64_t num_ended = 0, num_out_of_memory = 0;
  uint64_t last_id = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed);
    Commands commands = some_traffic(readers, rng, last_id);
    step(core, commands, static_cast<int64_t>(rng.below(120)), num_failures);
    num_ended += core.take_num_ended();
    for (Reader& reader : readers) reader.read();
    ASSERT_EQ(commands.size(), 0u) << seed;
  }
  for (Commands none; core.has_work(); num_ended += core.take_num_ended()) step(core, none, kNever, 0);
  for (Reader& reader : readers) {
    reader.read();
    ASSERT_EQ(reader.num_last, 1);
    num_out_of_memory += reader.output.error_code == ErrorCode::kResourceExhausted &&
                         reader.output.finish == FinishReason::kError;
  }
  EXPECT_EQ(num_ended, static_cast<int64_t>(readers.size()));
  EXPECT_GT(num_out_of_memory, 300);
  EXPECT_LT(num_out_of_memory, static_cast<int64_t>(readers.size()) - 300);
}

INSTANTIATE_TEST_SUITE_P(FailuresInARow, OutOfMemory,
                         ::testing::Combine(::testing::Values(1, 2, 50),
                                            ::testing::Values(kGroupCases[0], kGroupCases[3]),
                                            ::testing::Bool()),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param).name,
                                      std::get<2>(test.param) ? "_ahead" : "");
                         });

}  // namespace
}  // namespace lmdeploy::testing
