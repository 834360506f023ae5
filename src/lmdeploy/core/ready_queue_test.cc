#include "lmdeploy/core/ready_queue.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

namespace lmdeploy {
namespace {

using std::chrono::milliseconds;

void add_streams(ReadyQueue& queue, size_t count) {
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(queue.add_stream(), i);
}

bool readable(int fd) {
  pollfd watched{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&watched, 1, 0) == 1;
}

TEST(ReadyQueue, GivesEachStreamOnceInOrder) {
  ReadyQueue queue;
  add_streams(queue, 3);
  for (const size_t idx : {2, 0, 2, 1, 0}) queue.push(idx);
  for (const size_t idx : {2, 0, 1}) EXPECT_EQ(queue.pop(milliseconds{0}), idx);
  EXPECT_EQ(queue.pop(milliseconds{0}), std::nullopt);
  queue.push(2);
  EXPECT_EQ(queue.pop(milliseconds{0}), 2u);
}

TEST(ReadyQueue, WaitsUntilSomethingComes) {
  ReadyQueue queue;
  add_streams(queue, 8);
  EXPECT_EQ(queue.pop(milliseconds{5}), std::nullopt);
  std::thread engine([&] {
    std::this_thread::sleep_for(milliseconds{20});
    queue.push(7);
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(queue.pop(std::chrono::seconds{30}), 7u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{20});  // woken, not timed out
  engine.join();
}

TEST(ReadyQueue, DescriptorIsReadableWhileSomethingIsThere) {
  ReadyQueue queue;
  add_streams(queue, 2);
  queue.push(0);  // before the descriptor exists
  const int fd = queue.fileno();
  EXPECT_TRUE(readable(fd));
  EXPECT_EQ(queue.fileno(), fd);
  queue.push(1);
  queue.pop(milliseconds{0});
  EXPECT_TRUE(readable(fd));
  queue.pop(milliseconds{0});
  EXPECT_FALSE(readable(fd));
  queue.push(1);
  EXPECT_TRUE(readable(fd));
}

TEST(ReadyQueue, LosesNothingBetweenThreads) {
  constexpr size_t kStreams = 4, kRounds = 2000;
  ReadyQueue queue;
  add_streams(queue, kStreams);
  queue.fileno();
  std::vector<size_t> seen(kStreams);
  std::vector<std::thread> engines;
  for (size_t idx = 0; idx < kStreams; ++idx) {
    engines.emplace_back([&, idx] {
      for (size_t round = 0; round < kRounds; ++round) queue.push(idx);
    });
  }
  for (std::thread& engine : engines) engine.join();
  while (const auto idx = queue.pop(milliseconds{0})) ++seen[*idx];
  EXPECT_EQ(seen, std::vector<size_t>(kStreams, 1));
}

}  // namespace
}  // namespace lmdeploy
