// A time limit for what a socket waits for. Inside http/ only.
#pragma once

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>

#include "lmdeploy/http/socket.h"

namespace lmdeploy::http {

/// When the time is over, what the socket waits for ends with operation_aborted. The socket stays open, so
/// that an answer can say why. All of it on `executor`, which runs one thing at a time.
class Deadline {
 public:
  Deadline(Socket& socket, const boost::asio::any_io_executor& executor)
      : state_(std::make_shared<State>(socket, executor)) {}
  ~Deadline() { stop(); }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  /// Instead of the one before. 0: no limit.
  void start(std::chrono::milliseconds time) {
    stop();
    if (time.count() == 0) return;
    state_->timer.expires_after(time);
    state_->timer.async_wait(
        [state = state_, round = state_->round.load()](boost::system::error_code stopped) {
          if (stopped || round != state->round) return;
          state->passed = true;
          boost::system::error_code ignored;
          state->socket.cancel(ignored);
        });
  }
  void stop() {
    ++state_->round;  // one that is over but has not run yet
    state_->passed = false;
    state_->timer.cancel();
  }
  bool passed() const { return state_->passed; }

 private:
  struct State {
    State(Socket& of, const boost::asio::any_io_executor& executor) : socket(of), timer(executor) {}
    Socket& socket;
    boost::asio::steady_timer timer;
    std::atomic<uint64_t> round = 0;  // its owner may end on another thread
    bool passed = false;
  };
  std::shared_ptr<State> state_;
};

}  // namespace lmdeploy::http
