// Steps that are given to the model before the tokens of the step before them are known.
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core_driver.h"
#include "drawing_kernels.h"
#include "fake_model.h"
#include "thirds_grammar.h"

namespace lmdeploy::testing {
namespace {

class Ahead : public ::testing::Test {
 protected:
  Ahead() {
    model_.drawing = &kernels_;
    model_.before_step = [this](const StepInput& input) {
      if (!input.draws.empty()) ++num_ahead_;
      if (num_steps_++ == fails_at_) throw Error(ErrorCode::kInternal, "the device is gone");
    };
  }
  CoreDriver& driver() {
    if (driver_ == nullptr) driver_ = std::make_unique<CoreDriver>(model_, config_, kernels_);
    return *driver_;
  }

  EngineConfig config_ = small_config();
  FakeModel model_;
  DrawingKernels kernels_;
  int num_steps_ = 0, num_ahead_ = 0;  // of the model; of them with tokens just drawn
  int fails_at_ = -1;
  std::unique_ptr<CoreDriver> driver_;
};

TEST_F(Ahead, EachStepButTheFirstBeginsBeforeTheTokenBeforeItIsKnown) {
  std::vector<int> known_at;  // draws that the host had seen when a step began
  model_.before_step = [&](const StepInput&) { known_at.push_back(kernels_.num_finished); };
  const auto client = driver().submit(request_of(random_ids(1, 5), 6));
  driver().run();
  EXPECT_EQ(client->output.token_ids, model_.generate(random_ids(1, 5), 6));
  EXPECT_EQ(known_at, (std::vector<int>{0, 0, 1, 2, 3, 4})) << "and none after the last token";
}

TEST_F(Ahead, TheStepAfterAStopIdIsNotLookedAt) {
  model_.script = [](std::span<const int> tokens) { return tokens.size() == 8 ? 9 : 1; };
  Request request = turn_of(1, random_ids(1, 5), 20, true);
  request.stop_ids = {9};
  RequestOutput output = driver().complete(request);
  EXPECT_EQ(output.finish, FinishReason::kStop);
  EXPECT_EQ(output.token_ids, (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(output.session_tokens, 9);
  EXPECT_EQ(num_steps_, 5) << "of the prompt, three tokens, and one for nothing";
  model_.script = nullptr;
  const std::vector<int> history = concat(random_ids(1, 5), {1, 1, 1, 9, 4});
  EXPECT_EQ(driver().complete(turn_of(1, {4}, 5, false)).token_ids, model_.generate(history, 5));
}

TEST_F(Ahead, SomeEndWhileOthersGoOn) {
  std::vector<std::shared_ptr<Client>> clients;
  for (uint64_t i = 0; i < 8; ++i)
    clients.push_back(driver().submit(request_of(random_ids(i, 5), static_cast<int64_t>(1 + 3 * i))));
  driver().run();
  for (uint64_t i = 0; i < 8; ++i) {
    const auto count = static_cast<int64_t>(1 + 3 * i);
    EXPECT_EQ(clients[i]->output.token_ids, model_.generate(random_ids(i, 5), count)) << i;
  }
}

TEST_F(Ahead, CancelledWhileAStepIsOnItsWay) {
  const auto cancelled = driver().submit(request_of(random_ids(1, 5), 50));
  const auto other = driver().submit(request_of(random_ids(2, 5), 20));
  for (int i = 0; i < 5; ++i) driver().step();
  driver().cancel(*cancelled);
  driver().run();
  EXPECT_EQ(cancelled->output.finish, FinishReason::kAbort);
  EXPECT_EQ(cancelled->output.token_ids, model_.generate(random_ids(1, 5), 5));
  EXPECT_EQ(other->output.token_ids, model_.generate(random_ids(2, 5), 20));
  EXPECT_EQ(driver().stats().used_blocks, 0);
}

TEST_F(Ahead, AStepThatFailsEndsItsRequestsAfterWhatCameBefore) {
  fails_at_ = 4;
  const auto client = driver().submit(request_of(random_ids(1, 5), 50));
  driver().run();
  EXPECT_EQ(client->output.finish, FinishReason::kError);
  EXPECT_EQ(client->output.error_message, "the device is gone");
  EXPECT_EQ(client->output.token_ids, model_.generate(random_ids(1, 5), 4));
  EXPECT_EQ(driver().stats().failed_steps_in_a_row, 1);
  const auto next = driver().submit(request_of(random_ids(2, 5), 5));
  driver().run();
  EXPECT_EQ(next->output.token_ids, model_.generate(random_ids(2, 5), 5));
}

TEST_F(Ahead, AStepThatFailsIsNoMatterForWhoHasEndedBefore) {
  model_.script = [](std::span<const int> tokens) { return tokens.size() == 8 ? 9 : 1; };
  fails_at_ = 4;
  Request request = request_of(random_ids(1, 5), 50);
  request.stop_ids = {9};
  const RequestOutput output = driver().complete(request);
  EXPECT_EQ(output.finish, FinishReason::kStop);
  EXPECT_EQ(output.token_ids, (std::vector<int>{1, 1, 1}));
}

TEST_F(Ahead, LogitsThatAreNotFinite) {
  model_.script = [](std::span<const int> tokens) { return tokens.size() == 7 ? 3 : 1; };
  model_.poison_token = 3;
  const RequestOutput output = driver().complete(request_of(std::vector<int>(5, 1), 50));
  EXPECT_EQ(output.finish, FinishReason::kError);
  EXPECT_EQ(output.error_message,
            "the model's logits for token 8 have the maximum nan; expected a finite one");
  EXPECT_EQ(output.token_ids, (std::vector<int>{1, 1, 3}));
}

// The row is computed once more for the host, in the same place of the sequence.
TEST_F(Ahead, DrawsThatAreTooMuchForADevice) {
  kernels_.too_many_each = 5;
  std::vector<std::shared_ptr<Client>> clients;
  for (uint64_t i = 0; i < 4; ++i) clients.push_back(driver().submit(request_of(random_ids(i, 5), 30)));
  driver().run();
  for (uint64_t i = 0; i < 4; ++i)
    EXPECT_EQ(clients[i]->output.token_ids, model_.generate(random_ids(i, 5), 30)) << i;
}

TEST_F(Ahead, NotWhereTheHostReadsLogits) {
  const auto steps_ahead = [this](Request request) {
    num_ahead_ = 0;
    const RequestOutput output = driver().complete(std::move(request));
    EXPECT_NE(output.finish, FinishReason::kError) << output.error_message;
    return num_ahead_;
  };
  Request request = request_of(random_ids(1, 5), 6);
  EXPECT_EQ(steps_ahead(request), 5);
  request.sampling.repetition_penalty = 1.2f;
  request.sampling.temperature = 0.5f;
  EXPECT_EQ(steps_ahead(request), 5) << "penalties: they are made when the tokens before are known";
  Request changed = request;
  changed.num_logprobs = 2;
  EXPECT_EQ(steps_ahead(changed), 0);
  changed = request;
  changed.hidden_states = OutputRows::kGeneration;
  EXPECT_EQ(steps_ahead(changed), 0);
  changed = request;
  changed.logits = OutputRows::kAll;
  EXPECT_EQ(steps_ahead(changed), 0);
  changed = request;
  changed.grammar = std::make_shared<ThirdsGrammar>(2, 6);
  EXPECT_EQ(steps_ahead(changed), 0);
  changed = request;
  changed.logits_processors = {[](std::span<const int>, std::vector<float>&) {}};
  EXPECT_EQ(steps_ahead(changed), 0);
}

TEST_F(Ahead, NotWithGuesses) {
  config_ = guessing(config_, 3);
  EXPECT_EQ(driver().complete(request_of(std::vector<int>(8, 1), 20)).token_ids,
            model_.generate(std::vector<int>(8, 1), 20));
  EXPECT_EQ(num_ahead_, 0);
}

// In a pool for one of them: what ends has left its blocks before its last token is known.
TEST_F(Ahead, BlocksOfWhoEndsAreFreeForTheOthers) {
  config_.num_blocks = 6;
  config_.session_len = 24;
  const auto first = driver().submit(request_of(random_ids(1, 7), 5));
  const auto second = driver().submit(request_of(random_ids(2, 9), 15));
  driver().run();
  EXPECT_EQ(first->output.token_ids, model_.generate(random_ids(1, 7), 5));
  EXPECT_EQ(second->output.token_ids, model_.generate(random_ids(2, 9), 15));
}

// The row that shows it comes when the sequence has been preempted for the step on its way.
TEST_F(Ahead, WrongContentOfAPreemptedSequenceIsForgotten) {
  config_.num_blocks = 6;
  config_.session_len = 24;
  config_.enable_prefix_caching = true;
  const std::vector<int> prompt = {5, 5, 5, 5, 5, 5, 5};
  for (int poisoned_length = 8; poisoned_length < 14; ++poisoned_length) {
    model_.script = [=](std::span<const int> tokens) {
      return static_cast<int>(tokens.size()) + 1 == poisoned_length && tokens[0] == 5 ? 3 : 1;
    };
    model_.poison_token = 3;
    const auto other = driver().submit(request_of(random_ids(2, 9), 6));
    const auto poisoned = driver().submit(turn_of(1, prompt, 15, true));
    driver().run();
    EXPECT_EQ(poisoned->output.finish, FinishReason::kError);
    EXPECT_EQ(other->output.token_ids.size(), 6u);
    model_.poison_token = -1;
    const RequestOutput again = driver().complete(turn_of(1, prompt, 3, true));
    EXPECT_EQ(again.cached_tokens, 0) << poisoned_length;
  }
  EXPECT_GT(driver().stats().preemptions, 0);
}

}  // namespace
}  // namespace lmdeploy::testing
