#include "lmdeploy/http/signal.h"

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace lmdeploy::http {

namespace asio = boost::asio;

struct Signal::State {
  explicit State(const asio::any_io_executor& executor) : timer(executor) {}

  std::atomic<bool> is_set = false;
  asio::steady_timer timer;  // cancelled to wake the waiter
};

Signal::Signal(const asio::any_io_executor& executor) : state_(std::make_shared<State>(executor)) {}

void Signal::set() const {
  if (state_->is_set.exchange(true)) return;  // whoever set it wakes the waiter
  asio::post(state_->timer.get_executor(), [state = state_] { state->timer.cancel(); });
}

Task<bool> Signal::wait(std::optional<std::chrono::milliseconds> timeout) const {
  const std::shared_ptr<State> state = state_;
  const auto deadline =
      timeout ? asio::steady_timer::clock_type::now() + *timeout : asio::steady_timer::time_point::max();
  while (!state->is_set.exchange(false)) {
    if (timeout && asio::steady_timer::clock_type::now() >= deadline) co_return false;
    state->timer.expires_at(deadline);
    boost::system::error_code ignored;  // cancelled is what it waits for
    co_await state->timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  co_return true;
}

}  // namespace lmdeploy::http
