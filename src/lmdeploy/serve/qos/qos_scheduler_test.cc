#include "lmdeploy/serve/qos/qos_scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <queue>

#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

using Time = QosScheduler::Time;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// The documented sample.
QosConfig sample() {
  return {true,
          {{"Platinum", {{"user_id0", 100}, {"default", 0}}},
           {"Gold", {{"user_id1", 50}, {"user_id2", 50}}},
           {"Silver", {{"user_id3", 5}, {"default", 95}}},
           {"Bronze", {{"user_id4", 30}, {"user_id5", 30}, {"user_id6", 40}, {"default", 0}}}}};
}

/// Users send requests at random times; each runs for a random time in one of the slots. No clock.
class Simulation {
 public:
  Simulation(QosConfig config, int slots, uint64_t seed)
      : scheduler_(std::move(config), {slots, 0}), rng_(seed) {}

  void add_user(const std::string& user, double requests_per_second) {
    users_.push_back({user, requests_per_second});
  }

  /// How many requests of each user were begun.
  std::map<std::string, int> run(int num_seconds, double request_seconds) {
    const Time end = now_ + seconds(num_seconds);
    std::map<std::string, int> begun;
    for (; now_ < end; now_ += milliseconds(10)) {
      for (const auto& [user, rate] : users_)
        if (rng_.uniform() < rate * 0.01) enqueue(user);
      for (; !ends_.empty() && ends_.top().first <= now_; ends_.pop()) scheduler_.release(ends_.top().second);
      while (const auto request = scheduler_.next(now_)) {
        ++begun[names_[*request]];
        ends_.emplace(now_ + milliseconds(static_cast<int>(2000 * request_seconds * rng_.uniform())),
                      *request);
      }
    }
    return begun;
  }

 private:
  void enqueue(const std::string& user) {
    scheduler_.enqueue(names_.size(), user);
    names_.push_back(user);
  }

  QosScheduler scheduler_;
  Rng rng_;
  Time now_ = Time(seconds(1'000'000));
  std::vector<std::pair<std::string, double>> users_;
  std::vector<std::string> names_;  // by request
  using End = std::pair<Time, uint64_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

/// Everybody always wants more than there is.
TEST(QosScheduler, SharesAreTheQuotas) {
  const std::vector<QosUser> users = {{"a", 5}, {"b", 15}, {"c", 30}, {"d", 50}};
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Simulation simulation({true, {{"G", users}}}, 8, seed);
    for (const QosUser& user : users) simulation.add_user(user.id, 20);
    std::map<std::string, int> begun = simulation.run(600, 0.5);
    double total = 0;
    for (const auto& [user, count] : begun) total += count;
    for (const QosUser& user : users) EXPECT_NEAR(100 * begun[user.id] / total, user.quota, 2) << user.id;
  }
}

/// What one does not use goes to the others, by their quotas.
TEST(QosScheduler, UnusedSharesAreDividedByQuota) {
  Simulation simulation({true, {{"G", {{"idle", 60}, {"b", 10}, {"c", 30}}}}}, 8, 1);
  simulation.add_user("b", 20);
  simulation.add_user("c", 20);
  std::map<std::string, int> begun = simulation.run(600, 0.5);
  EXPECT_NEAR(100.0 * begun["b"] / (begun["b"] + begun["c"]), 25, 2);
}

TEST(QosScheduler, AGroupBeforeTheNextOne) {
  Simulation simulation(sample(), 8, 1);
  simulation.add_user("user_id0", 8);  // half of what there is
  simulation.add_user("user_id1", 30);
  simulation.add_user("user_id4", 30);
  std::map<std::string, int> begun = simulation.run(600, 0.5);
  EXPECT_NEAR(begun["user_id0"], 8 * 600, 300);  // all it asked for
  EXPECT_GT(begun["user_id1"], 7 * 600);         // all the rest
  EXPECT_LT(begun["user_id4"], 20);              // at the beginning, before others wait
}

/// Nobody with a quota starves while its group is served, however others press.
TEST(QosScheduler, NobodyWithAQuotaStarves) {
  Simulation simulation({true, {{"G", {{"small", 1}, {"big", 99}}}}}, 4, 1);
  simulation.add_user("small", 0.05);
  simulation.add_user("big", 500);
  std::map<std::string, int> begun = simulation.run(1200, 0.5);
  EXPECT_GE(begun["small"], 40);  // of about 60
}

Time at(int second) { return Time(seconds(1'000'000 + second)); }

TEST(QosScheduler, UnknownUsersGoToTheLargestDefault) {
  QosScheduler scheduler(sample(), {10, 0});
  scheduler.enqueue(1, "user_id4");  // Bronze
  scheduler.enqueue(2, "stranger");  // Silver's default
  scheduler.enqueue(3, "");
  scheduler.enqueue(4, "default");
  scheduler.enqueue(5, "user_id1");  // Gold
  for (const uint64_t request : {5u, 2u, 3u, 4u, 1u}) EXPECT_EQ(scheduler.next(at(0)), request);
  EXPECT_EQ(scheduler.next(at(0)), std::nullopt);
  QosScheduler without({true, {{"G", {{"a", 1}}}}}, {1, 0});
  expect_error(ErrorCode::kInvalidArgument, {"\"stranger\"", "default"},
               [&] { without.enqueue(1, "stranger"); });
  QosScheduler equal({true, {{"H", {{"default", 1}}}, {"L", {{"a", 1}, {"default", 1}}}}}, {9, 0});
  equal.enqueue(1, "a");
  equal.enqueue(2, "x");  // of equal ones the lower priority: behind nobody of H, beside a
  equal.enqueue(3, "a");
  for (const uint64_t request : {1u, 2u, 3u}) EXPECT_EQ(equal.next(at(0)), request);
}

TEST(QosScheduler, QuotaZeroIsServedWhenNobodyElseWaits) {
  QosScheduler scheduler({true, {{"G", {{"zero", 0}, {"a", 1}}}}}, {10, 0});
  scheduler.enqueue(1, "zero");
  for (uint64_t i = 2; i < 6; ++i) scheduler.enqueue(i, "a");
  for (const uint64_t request : {2u, 3u, 4u, 5u, 1u}) EXPECT_EQ(scheduler.next(at(0)), request);
}

TEST(QosScheduler, SlotsLimitWhatRuns) {
  QosScheduler scheduler({true, {{"G", {{"a", 1}}}}}, {2, 0});
  for (uint64_t i = 1; i <= 4; ++i) scheduler.enqueue(i, "a");
  EXPECT_EQ(scheduler.next(at(0)), 1u);
  EXPECT_EQ(scheduler.next(at(0)), 2u);
  EXPECT_EQ(scheduler.next(at(0)), std::nullopt);
  EXPECT_TRUE(scheduler.cancel(3));
  EXPECT_FALSE(scheduler.cancel(3));
  EXPECT_FALSE(scheduler.cancel(1));  // it runs
  scheduler.release(1);
  EXPECT_EQ(scheduler.next(at(0)), 4u);
  EXPECT_EQ(scheduler.num_waiting(), 0);
  EXPECT_EQ(scheduler.num_running(), 2);
}

/// A request of three answers takes three slots and counts three times.
TEST(QosScheduler, AnswersCount) {
  QosScheduler scheduler({true, {{"G", {{"a", 1}, {"b", 1}}}}}, {3, 0});
  scheduler.enqueue(1, "a", 3);
  for (uint64_t i = 2; i < 6; ++i) scheduler.enqueue(i, "b");
  scheduler.enqueue(6, "a");
  EXPECT_EQ(scheduler.next(at(0)), 1u);
  EXPECT_EQ(scheduler.next(at(0)), std::nullopt);
  scheduler.release(1);
  for (const uint64_t request : {2u, 3u, 4u}) EXPECT_EQ(scheduler.next(at(0)), request);
  scheduler.release(2);
  EXPECT_EQ(scheduler.next(at(0)), 6u) << "three each";
}

TEST(QosScheduler, EachGroupHasItsOwnLine) {
  QosScheduler scheduler({true, {{"H", {{"a", 1}}}, {"L", {{"default", 1}}}}}, {1, 2});
  EXPECT_TRUE(scheduler.enqueue(1, "x"));
  EXPECT_EQ(scheduler.next(at(0)), 1u);
  EXPECT_TRUE(scheduler.enqueue(2, "x"));
  EXPECT_TRUE(scheduler.enqueue(3, "y"));
  EXPECT_FALSE(scheduler.enqueue(4, "x"));
  EXPECT_TRUE(scheduler.enqueue(5, "a"));
  const std::vector<QosGroupCounts> counts = scheduler.group_counts();
  EXPECT_EQ(counts[0].waiting, 1);
  EXPECT_EQ(counts[1].waiting, 2);
  EXPECT_EQ(counts[1].running, 1);
  EXPECT_EQ(counts[1].begun, 1);
}

TEST(QosScheduler, OnlyTheLastMinuteCounts) {
  QosScheduler scheduler({true, {{"G", {{"a", 1}, {"b", 1}}}}}, {1000, 0});
  for (uint64_t i = 0; i < 10; ++i) scheduler.enqueue(i, "a");
  for (int i = 0; i < 10; ++i) scheduler.next(at(0));
  for (uint64_t i = 100; i < 120; ++i) scheduler.enqueue(i, i % 2 == 0 ? "a" : "b");
  EXPECT_EQ(scheduler.next(at(50)), 101u);  // a has had its part
  EXPECT_EQ(scheduler.next(at(50)), 103u);
  EXPECT_EQ(scheduler.next(at(70)), 100u);  // forgotten, while b's two are not
}

TEST(QosScheduler, SwitchedOffIsFirstComeFirstServed) {
  QosScheduler scheduler({false, {}}, {10, 0});
  for (uint64_t i = 0; i < 5; ++i) scheduler.enqueue(i, i % 2 == 0 ? "a" : "b");
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(scheduler.next(at(0)), i);
}

}  // namespace
}  // namespace lmdeploy
