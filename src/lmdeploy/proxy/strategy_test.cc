#include "lmdeploy/proxy/strategy.h"

#include <gtest/gtest.h>

#include <deque>
#include <numeric>
#include <queue>

#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/core/random.h"

namespace lmdeploy::proxy {
namespace {

struct Machine {
  double seconds = 1;  // of a request
  double noise = 0.2;  // of that, either way
  double speed = 1;    // as the proxy is told
};

/// 900 requests, 30 at a time (F76), without a clock: how many each machine got.
class Simulation {
 public:
  Simulation(Strategy strategy, std::vector<Machine> machines, uint64_t seed)
      : strategy_(strategy), machines_(std::move(machines)), nodes_(machines_.size()), rng_(seed) {
    for (size_t i = 0; i < machines_.size(); ++i)
      nodes_[i].candidate = {machines_[i].speed, 0, {}, 0, i * 77 + 1};
  }

  std::vector<int> run(int requests = 900, int concurrency = 30) {
    for (; requests > 0; --requests) {
      if (static_cast<int>(running_.size()) == concurrency) finish();
      start();
    }
    while (!running_.empty()) finish();
    std::vector<int> counts;
    for (const Node& node : nodes_) {
      counts.push_back(node.count);
      EXPECT_EQ(node.candidate.unfinished, 0);
    }
    return counts;
  }

 private:
  struct Node {
    Candidate candidate;
    std::deque<double> history;
    int count = 0;
  };
  struct Running {
    double end, seconds;
    size_t node;
    bool operator<(const Running& other) const { return end > other.end; }  // the first to end on top
  };

  void start() {
    std::vector<Candidate> candidates;
    for (const Node& node : nodes_) candidates.push_back(node.candidate);
    const size_t chosen = choose(strategy_, candidates, rng_.bits(), /*prefix=*/rng_.bits());
    for (Node& node : nodes_) ++node.candidate.passed_over;
    nodes_[chosen].candidate.passed_over = 0;
    ++nodes_[chosen].candidate.unfinished;
    ++nodes_[chosen].count;
    const Machine& machine = machines_[chosen];
    const double seconds = machine.seconds * (1 + machine.noise * (2 * rng_.uniform() - 1));
    running_.push({now_ + seconds, seconds, chosen});
  }

  void finish() {
    const Running first = running_.top();
    running_.pop();
    now_ = first.end;
    Node& node = nodes_[first.node];
    --node.candidate.unfinished;
    node.history.push_back(first.seconds);
    if (node.history.size() > 15) node.history.pop_front();
    node.candidate.mean_latency = std::accumulate(node.history.begin(), node.history.end(), 0.0) /
                                  static_cast<double>(node.history.size());
  }

  Strategy strategy_;
  std::vector<Machine> machines_;
  std::vector<Node> nodes_;
  Rng rng_;
  double now_ = 0;
  std::priority_queue<Running> running_;
};

TEST(Strategy, F76_EqualNodesShareTheLoad) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const Strategy strategy : {Strategy::kRandom, Strategy::kMinExpectedLatency})
      for (const int count : Simulation(strategy, {{}, {}, {}}, seed).run())
        EXPECT_NEAR(count, 300, 45) << seed;
    for (const double noise : {0.0, 0.2, 0.9})
      for (const int count :
           Simulation(Strategy::kMinObservedLatency, std::vector<Machine>(3, {1, noise, 1}), seed).run())
        EXPECT_GE(count, 90) << noise << " " << seed;
  }
}

TEST(Strategy, F76_ASlowNodeGetsLess) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const Strategy strategy : {Strategy::kMinExpectedLatency, Strategy::kMinObservedLatency}) {
      const std::vector<int> counts = Simulation(strategy, {{}, {3, 0.2, 1}, {}}, seed).run();
      EXPECT_LE(counts[1], 200) << seed;
      EXPECT_GE(counts[1], 10) << seed;
    }
}

TEST(Strategy, SpeedsGiveTheShares) {
  for (const Strategy strategy : {Strategy::kRandom, Strategy::kMinExpectedLatency}) {
    const std::vector<int> counts = Simulation(strategy, {{1, 0.1, 4}, {1, 0.1, 1}}, 1).run(5000);
    EXPECT_NEAR(counts[0], 4000, 150) << static_cast<int>(strategy);
  }
}

TEST(Strategy, MinExpectedLatencyIsTheLeastAndTiesAreRandom) {
  std::vector<Candidate> candidates = {{1, 3, {}, 0, 0}, {2, 5, {}, 0, 0}, {1, 4, {}, 0, 0}};
  for (uint64_t draw = 0; draw < 20; ++draw)
    EXPECT_EQ(choose(Strategy::kMinExpectedLatency, candidates, draw, 0), 1u);
  candidates[1].unfinished = 6;
  std::vector<int> counts(3);
  for (uint64_t draw = 0; draw < 1000; ++draw)
    ++counts[choose(Strategy::kMinExpectedLatency, candidates, draw, 0)];
  EXPECT_NEAR(counts[0], 500, 80);
  EXPECT_EQ(counts[2], 0);
}

TEST(Strategy, MinObservedLatency) {
  const auto chosen = [](const std::vector<Candidate>& candidates) {
    return choose(Strategy::kMinObservedLatency, candidates, 1, 0);
  };
  EXPECT_EQ(chosen({{1, 9, 1.0, 0, 0}, {1, 9, {}, 0, 0}}), 1u);   // without history first
  EXPECT_EQ(chosen({{1, 9, 1.0, 0, 0}, {1, 10, {}, 0, 0}}), 0u);  // but not all at once
  EXPECT_EQ(chosen({{1, 9, {}, 0, 0}, {1, 8, {}, 0, 0}}), 1u);
  EXPECT_EQ(chosen({{1, 9, 1.0, 0, 0}, {1, 0, 2.0, 5, 0}}), 0u);   // the least mean, whatever it works on
  EXPECT_EQ(chosen({{1, 9, 1.0, 0, 0}, {1, 5, 1.09, 0, 0}}), 1u);  // within 10 %: the fewest unfinished
  EXPECT_EQ(chosen({{1, 9, 1.0, 0, 0}, {1, 0, 2.0, 6, 0}}), 1u);   // passed over for long
  EXPECT_EQ(chosen({{1, 0, 1.0, 0, 0}, {1, 1, 2.0, 60, 0}}), 0u);  // but has not even done that
}

TEST(Strategy, PrefixesStayAtTheirNode) {
  std::vector<Candidate> nodes = {{1, 0, {}, 0, 11}, {1, 0, {}, 0, 22}, {1, 0, {}, 0, 33}};
  std::vector<int> counts(3);
  int moved = 0;
  for (uint64_t prefix = 0; prefix < 3000; ++prefix) {
    const size_t before = choose(Strategy::kPrefixAware, nodes, prefix * 5, mix_bits(prefix));
    EXPECT_EQ(choose(Strategy::kPrefixAware, nodes, prefix * 7, mix_bits(prefix)), before);
    ++counts[before];
    // Without the last node only its own prefixes go elsewhere.
    const size_t after = choose(Strategy::kPrefixAware, {nodes[0], nodes[1]}, 0, mix_bits(prefix));
    if (before != 2 && after != before) ++moved;
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 100);
  EXPECT_EQ(moved, 0);
}

TEST(Strategy, PrefixesLeaveAnOverloadedNode) {
  std::vector<Candidate> nodes = {{1, 0, {}, 0, 11}, {1, 0, {}, 0, 22}, {1, 0, {}, 0, 33}};
  const size_t home = choose(Strategy::kPrefixAware, nodes, 0, 5);
  std::vector<int> counts(3);
  for (int i = 0; i < 90; ++i) {  // all the same prompt, none of them ends
    const size_t chosen = choose(Strategy::kPrefixAware, nodes, 0, 5);
    ++nodes[chosen].unfinished;
    ++counts[chosen];
  }
  EXPECT_GT(counts[home], 30);
  EXPECT_LE(counts[home], 45);
  for (const int count : counts) EXPECT_GT(count, 5);
}

TEST(Strategy, Names) {
  EXPECT_EQ(strategy_from_string("random"), Strategy::kRandom);
  EXPECT_EQ(strategy_from_string("prefix_aware"), Strategy::kPrefixAware);
  expect_error(ErrorCode::kInvalidArgument, {"fastest", "random, min_expected_latency, min_observed_latency"},
               [] { strategy_from_string("fastest"); });
}

}  // namespace
}  // namespace lmdeploy::proxy
