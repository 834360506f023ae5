#include "lmdeploy/http/exchange.h"

namespace lmdeploy::http {

Task<bool> Exchange::wait(const Signal& signal, std::optional<std::chrono::milliseconds> timeout) {
  set_on_gone([signal] { signal.set(); });
  bool in_time = false;
  if (!client_gone() && !server_ends()) in_time = co_await signal.wait(timeout);
  set_on_gone(nullptr);
  if (client_gone()) throw ClientGone();
  if (server_ends()) throw ServerEnds();
  co_return in_time;
}

}  // namespace lmdeploy::http
