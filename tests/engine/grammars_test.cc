// Requests whose tokens a grammar limits.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core_driver.h"
#include "fake_model.h"
#include "thirds_grammar.h"

namespace lmdeploy::testing {
namespace {

Request thirds_request(std::vector<int> prompt, int least, int most) {
  Request request = request_of(std::move(prompt), 100);
  request.grammar = std::make_shared<ThirdsGrammar>(least, most);
  return request;
}

/// The best allowed token each time.
std::vector<int> constrained(const FakeModel& model, std::vector<int> tokens, int count) {
  std::vector<int> out;
  for (int i = 0; i < count; ++i) {
    std::vector<float> row = model.logits_after(tokens, 0);
    for (size_t id = 0; id < row.size(); ++id)
      if (static_cast<int>(id) % 3 != i % 3) row[id] = -std::numeric_limits<float>::infinity();
    out.push_back(static_cast<int>(std::ranges::max_element(row) - row.begin()));
    tokens.push_back(out.back());
  }
  return out;
}

TEST(Grammars, TheBestAllowedTokenIsTaken) {
  FakeModel model;
  CoreDriver driver(model, small_config());
  const RequestOutput output = driver.complete(thirds_request(random_ids(1, 5), 7, 7));
  EXPECT_EQ(output.finish, FinishReason::kStop) << "nothing may follow the seventh token";
  EXPECT_EQ(output.token_ids, constrained(model, random_ids(1, 5), 7));
}

TEST(Grammars, StopIdsComeOnlyWhereItIsWhole) {
  FakeModel model;
  CoreDriver driver(model, small_config());
  model.script = [](std::span<const int>) {
    return 10;
  };  // a stop id that the grammar would let come as token 1, 4, ...
  Request request = thirds_request(random_ids(1, 5), 3, 9);
  request.stop_ids = {10, 1 << 20};
  RequestOutput output = driver.complete(request);
  EXPECT_EQ(output.finish, FinishReason::kStop);
  EXPECT_EQ(output.token_ids.size(), 3u);
  EXPECT_EQ(std::ranges::count(output.token_ids, 10), 0);
  request.min_new_tokens = 5;
  EXPECT_EQ(driver.complete(request).token_ids.size(), 5u);
  request.min_new_tokens = 50;
  output = driver.complete(request);
  EXPECT_EQ(output.finish, FinishReason::kStop) << "it is over, whatever min_new_tokens asks for";
  EXPECT_EQ(output.token_ids.size(), 9u);
}

TEST(Grammars, MasksComeAfterBiasAndWithBadWords) {
  FakeModel model;
  CoreDriver driver(model, small_config());
  Request request = thirds_request(random_ids(1, 5), 1, 1);
  request.sampling.logit_bias = {{4, 1e6f}, {6, 1e5f}, {9, 1e4f}};
  EXPECT_EQ(driver.complete(request).token_ids, (std::vector<int>{6}));
  request.sampling.bad_words = {{6}};
  EXPECT_EQ(driver.complete(request).token_ids, (std::vector<int>{9}));
  for (int id = 0; id < 64; id += 3) request.sampling.bad_words.push_back({id});
  const RequestOutput output = driver.complete(request);
  EXPECT_EQ(output.finish, FinishReason::kError);
  EXPECT_EQ(output.error_code, ErrorCode::kInvalidArgument) << "the request's own doing";
  EXPECT_NE(output.error_message.find("no token is left"), std::string::npos) << output.error_message;
}

TEST(Grammars, AGrammarThatFailsEndsItsRequestAlone) {
  FakeModel model;
  CoreDriver driver(model, small_config());
  Request failing = thirds_request(random_ids(1, 5), 7, 7);
  auto grammar = std::make_shared<ThirdsGrammar>(7, 7);
  grammar->fails_at = 3;
  failing.grammar = grammar;
  const auto bad = driver.submit(failing);
  const auto good = driver.submit(thirds_request(random_ids(2, 5), 7, 7));
  driver.run();
  EXPECT_EQ(bad->output.finish, FinishReason::kError);
  EXPECT_NE(bad->output.error_message.find("too much"), std::string::npos);
  EXPECT_EQ(good->output.token_ids, constrained(model, random_ids(2, 5), 7));
}

class GrammarTraffic : public ::testing::TestWithParam<GroupCase> {};

// Blocks are short, so sequences are preempted and computed again; prompts come in chunks and from the prefix
// index.
TEST_P(GrammarTraffic, TheSameTokensInAnyCompany) {
  FakeOptions options;
  options.windows = GetParam().windows;
  FakeModel model(options);
  EngineConfig config = small_config(GetParam().num_groups());
  config.num_blocks = 30 * GetParam().num_groups();
  config.max_prefill_token_num = 16;
  config.enable_prefix_caching = true;
  CoreDriver driver(model, config);
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 12; ++i) {
    Request request =
        thirds_request(random_ids(i % 3, 20 + static_cast<int64_t>(i)), 5, 20 + static_cast<int>(i));
    if (i % 4 == 3) request.grammar = nullptr;
    request.max_new_tokens = 40;
    request.sampling.temperature = i % 2 == 0 ? 0 : 1.5f;
    request.sampling.seed = i;
    requests.push_back(std::move(request));
  }
  std::vector<std::vector<int>> alone;
  for (const Request& request : requests) alone.push_back(driver.complete(request).token_ids);
  std::vector<std::shared_ptr<Client>> clients;
  for (const Request& request : requests) clients.push_back(driver.submit(request));
  driver.run();
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(clients[i]->output.token_ids, alone[i]) << i;
    if (requests[i].grammar == nullptr) continue;
    EXPECT_EQ(alone[i].size(), 20 + i);
    for (size_t k = 0; k < alone[i].size(); ++k) EXPECT_EQ(alone[i][k] % 3, static_cast<int>(k % 3));
  }
  EXPECT_GT(driver.stats().preemptions, 0);
}
INSTANTIATE_TEST_SUITE_P(Models, GrammarTraffic, ::testing::ValuesIn(kGroupCases), name_of);

}  // namespace
}  // namespace lmdeploy::testing
