// Seeded random traffic against an oracle that knows each conversation by its tokens alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "core_driver.h"
#include "drawing_kernels.h"
#include "fake_model.h"
#include "lmdeploy/core/random.h"

namespace lmdeploy::testing {
namespace {

struct TrafficCase {
  const char* name;
  int64_t num_blocks;  // that one full group would need
  int64_t max_batch_size, max_prefill_token_num;
  bool prefix_caching;
  RopeSpec::Kind rope;
  int64_t num_guesses = 0;  // of a draft model
  bool draws = false;       // as a device does: steps go ahead of their tokens
  bool crowded() const { return num_blocks < 20 && max_batch_size > 1; }
};
void PrintTo(const TrafficCase& c, std::ostream* out) { *out << c.name; }

/// What a session must hold, whatever the engine did with its blocks.
struct Conversation {
  std::vector<int> tokens;
  uint64_t num_drawn = 0;
  int64_t rope_length = 0;
};

struct Flight {
  std::shared_ptr<Client> client;
  Request request;
  Conversation before;  // the request's prompt included
  bool cancelled = false;
  std::optional<ErrorCode> expected_error;
};

class Traffic {
 public:
  Traffic(const TrafficCase& c, const GroupCase& groups, uint64_t seed)
      : rng_(seed),
        model_(options_of(c, groups)),
        draft_model_(options_of(c, kGroupCases[0])),
        driver_(c.draws
                    ? CoreDriver(model_, config_of(c, model_), kernels_)
                    : CoreDriver(model_, config_of(c, model_), c.num_guesses > 0 ? &draft_model_ : nullptr)) {
    guess_mostly_right(draft_model_, model_);
    if (c.draws) model_.drawing = &kernels_;
    kernels_.too_many_each = 13;
  }

  void run(int num_steps) {
    for (int i = 0; i < num_steps; ++i) {
      if (flights_.size() < 12 && rng_.below(3) == 0) start();
      if (rng_.below(15) == 0) cancel_one();
      if (rng_.below(40) == 0) end_idle_session();
      driver_.step();
      settle();
    }
    driver_.run();
    settle();
    EXPECT_TRUE(flights_.empty());
    expect_clean();
  }
  EngineStats stats() const { return driver_.stats(); }
  int64_t num_checked() const { return num_checked_; }

 private:
  static FakeOptions options_of(const TrafficCase& c, const GroupCase& groups) {
    FakeOptions options;
    options.windows = groups.windows;
    options.max_step_tokens = c.max_prefill_token_num + c.max_batch_size;
    options.max_logit_rows = c.max_batch_size;
    options.rope.kind = c.rope;
    options.rope.original_max_positions = c.rope == RopeSpec::Kind::kLongRope ? 25 : 10;
    options.rope.factor = 2;
    options.rope.rotary_dim = 4;
    return options;
  }
  static EngineConfig config_of(const TrafficCase& c, const Model& model) {
    EngineConfig config = small_config();
    config.session_len = c.num_blocks * config.block_len;
    const BlockGroups groups(config.block_len, model.kv_groups());
    config.num_blocks = c.crowded() ? groups.least_for(config.session_len)
                                    : c.num_blocks * static_cast<int64_t>(groups.size());
    config.max_batch_size = c.max_batch_size;
    config.max_prefill_token_num = c.max_prefill_token_num;
    config.max_logit_rows = c.max_batch_size;
    config.enable_prefix_caching = c.prefix_caching;
    return c.num_guesses > 0 ? guessing(config, c.num_guesses, SpeculativeMethod::kDraft) : config;
  }

  // Heads are shared between requests, so that prefixes can be.
  std::vector<int> random_prompt() {
    std::vector<int> ids = random_ids(rng_.below(3), static_cast<int64_t>(rng_.below(14)));
    for (uint64_t i = 1 + rng_.below(6); i > 0; --i) ids.push_back(static_cast<int>(rng_.below(60)));
    return ids;
  }

  bool busy(uint64_t session_id) const {
    return std::ranges::any_of(flights_, [&](const Flight& flight) {
      return flight.request.session_id == session_id && !flight.expected_error;
    });
  }

  Request random_request() {
    Request request = request_of(random_prompt(), static_cast<int64_t>(rng_.below(14)));
    request.session_id = rng_.below(3) == 0 ? 0 : 1 + rng_.below(5);
    if (request.session_id != 0) {
      request.sequence_start = rng_.below(4) == 0;
      request.sequence_end = rng_.below(6) == 0;
      if (rng_.below(4) == 0) request.step = static_cast<int64_t>(rng_.below(24));
    }
    if (rng_.below(2) == 0) {
      request.sampling.temperature = 0.9f;
      request.sampling.top_k = rng_.below(2) == 0 ? 0 : 10;
      request.sampling.repetition_penalty = 1.1f;
      request.sampling.seed = rng_.bits();
    }
    request.stop_ids = {static_cast<int>(rng_.below(60)), static_cast<int>(rng_.below(60))};
    request.min_new_tokens = static_cast<int64_t>(rng_.below(4));
    return request;
  }

  void start() {
    Flight flight;
    flight.request = random_request();
    Request& request = flight.request;
    const auto known = conversations_.find(request.session_id);
    if (request.session_id != 0 && busy(request.session_id)) {
      flight.expected_error = ErrorCode::kBusy;
    } else if (!request.sequence_start && known == conversations_.end()) {
      flight.expected_error = ErrorCode::kNotFound;
    } else {
      if (!request.sequence_start) flight.before = known->second;
      std::vector<int>& tokens = flight.before.tokens;
      if (!request.sequence_start && request.step >= 0 && request.step < static_cast<int64_t>(tokens.size()))
        tokens.resize(static_cast<size_t>(request.step));
      if (tokens.empty()) flight.before.rope_length = static_cast<int64_t>(request.input_ids.size());
      tokens = concat(tokens, request.input_ids);
      const int64_t room = driver_.config().session_len - (request.max_new_tokens == 0 ? 0 : 1);
      if (static_cast<int64_t>(tokens.size()) > room) flight.expected_error = ErrorCode::kInvalidArgument;
    }
    if (!flight.expected_error && request.session_id != 0) conversations_.erase(request.session_id);
    flight.client = driver_.submit(request);
    flights_.push_back(std::move(flight));
  }

  void cancel_one() {
    if (flights_.empty()) return;
    Flight& flight = flights_[rng_.below(flights_.size())];
    flight.cancelled = true;
    driver_.cancel(*flight.client);
  }

  void end_idle_session() {
    const uint64_t id = 1 + rng_.below(5);
    if (busy(id)) return;
    driver_.end_session(id);
    conversations_.erase(id);
  }

  /// The whole answer that the request gives when nobody interrupts it; `conversation` grows by it.
  std::vector<int> oracle(const Flight& flight, Conversation& conversation, size_t max_tokens,
                          FinishReason& reason) {
    const Request& request = flight.request;
    const auto prompt = static_cast<int64_t>(conversation.tokens.size());
    const int64_t end = std::min(prompt + request.max_new_tokens, driver_.config().session_len);
    std::vector<int> answer;
    reason = FinishReason::kLength;
    ThreadPool threads(1);
    Sampler sampler(threads);
    while (static_cast<int64_t>(conversation.tokens.size()) < end && answer.size() < max_tokens) {
      std::vector<float> row = model_.logits_after(conversation.tokens, conversation.rope_length);
      SampleInput input;
      input.params = &request.sampling;
      input.tokens = conversation.tokens;
      input.generated_begin = prompt;
      if (static_cast<int64_t>(answer.size()) < request.min_new_tokens) input.banned_ids = request.stop_ids;
      input.draw = conversation.num_drawn++;
      const ConstTensorView view(reinterpret_cast<const std::byte*>(row.data()), DType::kF32,
                                 {1, static_cast<int64_t>(row.size())});
      const int token = sampler.sample(view, {&input, 1})[0].token;
      conversation.tokens.push_back(token);
      if (std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) {
        reason = FinishReason::kStop;
        break;
      }
      answer.push_back(token);
    }
    return answer;
  }

  void settle() {
    for (const Flight& flight : flights_)
      if (flight.client->done()) check(flight);
    std::erase_if(flights_, [](const Flight& flight) { return flight.client->done(); });
  }

  void check(const Flight& flight) {
    const RequestOutput& output = flight.client->output;
    ++num_checked_;
    if (flight.expected_error) {
      ASSERT_EQ(output.finish, FinishReason::kError);
      ASSERT_EQ(output.error_code, *flight.expected_error) << output.error_message;
      return;
    }
    ASSERT_NE(output.finish, FinishReason::kError) << output.error_message;
    Conversation conversation = flight.before;
    FinishReason reason = FinishReason::kNone;
    const bool aborted = output.finish == FinishReason::kAbort;
    ASSERT_TRUE(flight.cancelled || !aborted);
    ASSERT_EQ(output.token_ids,
              oracle(flight, conversation, aborted ? output.token_ids.size() : SIZE_MAX, reason));
    ASSERT_TRUE(aborted || output.finish == reason) << to_string(output.finish);
    ASSERT_EQ(output.session_tokens, static_cast<int64_t>(conversation.tokens.size()));
    ASSERT_EQ(output.generated_tokens, static_cast<int64_t>(output.token_ids.size()));
    if (flight.request.session_id != 0 && !flight.request.sequence_end)
      conversations_[flight.request.session_id] = conversation;
  }

  void expect_clean() {
    for (uint64_t id = 1; id <= 5; ++id) driver_.end_session(id);
    driver_.step();
    const EngineStats s = driver_.stats();
    EXPECT_EQ(s.running + s.waiting + s.sessions, 0);
    EXPECT_EQ(s.used_blocks, 0);
    EXPECT_TRUE(driver_.config().enable_prefix_caching || s.free_blocks == s.total_blocks);
    EXPECT_EQ(s.finished + s.aborted + s.failed, num_checked_);
  }

  Rng rng_;
  FakeModel model_, draft_model_;
  DrawingKernels kernels_;
  CoreDriver driver_;
  std::vector<Flight> flights_;
  std::map<uint64_t, Conversation> conversations_;  // of idle sessions
  int64_t num_checked_ = 0;
};

class RandomTraffic : public ::testing::TestWithParam<std::tuple<TrafficCase, GroupCase>> {};

TEST_P(RandomTraffic, EveryAnswerIsThatOfItsTokensAlone) {
  const auto& [traffic_case, groups] = GetParam();
  EngineStats sum;
  int64_t accepted = 0;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    SCOPED_TRACE(seed);
    Traffic traffic(traffic_case, groups, seed);
    traffic.run(1500);
    EXPECT_GT(traffic.num_checked(), 100);
    sum.preemptions += traffic.stats().preemptions;
    sum.prefix_hit_tokens += traffic.stats().prefix_hit_tokens;
    accepted += traffic.stats().speculative.num_accepted_tokens;
  }
  EXPECT_EQ(sum.preemptions > 0, traffic_case.crowded()) << "blocks run out where they are meant to";
  EXPECT_EQ(sum.prefix_hit_tokens > 0, traffic_case.prefix_caching);
  EXPECT_EQ(accepted > 0, traffic_case.num_guesses > 0);
}

constexpr auto kPlain = RopeSpec::Kind::kDefault;
INSTANTIATE_TEST_SUITE_P(
    Engine, RandomTraffic,
    ::testing::Combine(
        ::testing::Values(TrafficCase{"roomy", 200, 8, 64, false, kPlain},
                          TrafficCase{"roomy_cached", 200, 8, 64, true, kPlain},
                          TrafficCase{"small_chunks", 200, 8, 3, true, kPlain},
                          TrafficCase{"tiny_pool", 12, 6, 16, false, kPlain},
                          TrafficCase{"tiny_pool_cached", 12, 6, 16, true, kPlain},
                          TrafficCase{"tiny_pool_small_chunks", 10, 4, 2, true, kPlain},
                          TrafficCase{"one_at_a_time", 12, 1, 5, true, kPlain},
                          TrafficCase{"guesses", 200, 8, 64, true, kPlain, 5},
                          TrafficCase{"guesses_tiny_pool", 12, 6, 16, true, kPlain, 3},
                          TrafficCase{"guesses_rope_by_length", 14, 6, 5, true, RopeSpec::Kind::kLongRope, 3},
                          TrafficCase{"ahead", 200, 8, 64, true, kPlain, 0, true},
                          TrafficCase{"ahead_small_chunks", 200, 8, 3, false, kPlain, 0, true},
                          TrafficCase{"ahead_tiny_pool", 12, 6, 16, true, kPlain, 0, true},
                          TrafficCase{"ahead_one_at_a_time", 12, 1, 5, true, kPlain, 0, true},
                          TrafficCase{"ahead_rope_by_length", 14, 6, 5, true, RopeSpec::Kind::kLongRope, 0,
                                      true},
                          TrafficCase{"rope_by_first_prompt", 14, 6, 16, true, RopeSpec::Kind::kDynamicNtk},
                          TrafficCase{"rope_by_length", 14, 6, 5, true, RopeSpec::Kind::kLongRope}),
        ::testing::ValuesIn(kGroupCases)),
    [](const auto& test) { return cat(std::get<0>(test.param).name, "_", std::get<1>(test.param).name); });

}  // namespace
}  // namespace lmdeploy::testing
