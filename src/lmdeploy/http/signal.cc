#include "lmdeploy/http/signal.h"

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <mutex>

namespace lmdeploy::http {

namespace asio = boost::asio;
using Timer = asio::steady_timer;

/// Knows an executor only while somebody waits: a callback may outlast the server.
struct Signal::State {
  std::mutex mutex;
  bool is_set = false;
  std::shared_ptr<Timer> waiter;  // cancelled to wake
};

namespace {

/// On the waiter's strand.
void wake(std::shared_ptr<Timer> timer) {
  const auto executor = timer->get_executor();
  asio::post(executor, [timer = std::move(timer)] { timer->cancel(); });
}

}  // namespace

Signal::Signal() : state_(std::make_shared<State>()) {}

void Signal::set() const {
  const std::lock_guard lock(state_->mutex);
  state_->is_set = true;
  if (state_->waiter) wake(std::move(state_->waiter));
}

Task<bool> Signal::wait(std::optional<std::chrono::milliseconds> timeout) const {
  const std::shared_ptr<State> state = state_;
  const auto timer = std::make_shared<Timer>(co_await asio::this_coro::executor);
  timer->expires_at(timeout ? Timer::clock_type::now() + *timeout : Timer::time_point::max());
  {
    const std::lock_guard lock(state->mutex);
    if (std::exchange(state->is_set, false)) co_return true;
    state->waiter = timer;
  }
  boost::system::error_code ignored;  // cancelled is what it waits for
  co_await timer->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  const std::lock_guard lock(state->mutex);
  state->waiter.reset();
  co_return std::exchange(state->is_set, false);
}

}  // namespace lmdeploy::http
