#include "lmdeploy/http/signal.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <thread>

namespace lmdeploy::http {
namespace {

using std::chrono::milliseconds;

TEST(Signal, SetBeforeOrDuringAWait) {
  boost::asio::io_context io;
  const Signal signal;
  int woken = 0;
  signal.set();
  signal.set();  // counts once
  const auto waits = [&]() -> Task<> {
    EXPECT_TRUE(co_await signal.wait());
    ++woken;
    boost::asio::post(io, [&] { signal.set(); });
    EXPECT_TRUE(co_await signal.wait());
    ++woken;
    EXPECT_FALSE(co_await signal.wait(milliseconds(1)));
    EXPECT_FALSE(co_await signal.wait(milliseconds(0)));
    signal.set();
    EXPECT_TRUE(co_await signal.wait(milliseconds(0)));
  };
  boost::asio::co_spawn(io, waits, boost::asio::detached);
  io.run();
  EXPECT_EQ(woken, 2);
}

TEST(Signal, FromOtherThreadsAndAfterTheLoopIsGone) {
  const Signal signal, answer;
  std::thread other([signal, answer] {
    for (int i = 0; i < 2000; ++i) signal.set();
  });
  {
    boost::asio::io_context io;
    const auto waits = [&]() -> Task<> {
      for (int i = 0; i < 20; ++i) co_await signal.wait(milliseconds(1));
    };
    boost::asio::co_spawn(io, waits, boost::asio::detached);
    io.run();
  }
  signal.set();
  other.join();
}

}  // namespace
}  // namespace lmdeploy::http
