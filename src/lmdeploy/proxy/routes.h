// What can be asked of the proxy.
#pragma once

#include <functional>
#include <string>

#include "lmdeploy/http/exchange.h"
#include "lmdeploy/proxy/forward.h"

namespace lmdeploy::proxy {

/// What routes work on.
struct RouteContext {
  ForwardContext& forward;
  http::Client& control;  // asks nodes about themselves; its waits are short
  /// Writes the node file, if there is one.
  std::function<void()> save;
};

using RouteHandler = http::Task<> (*)(http::Exchange&, RouteContext&);

struct Route {
  const char* method;
  const char* path;
  RouteHandler handler;
  const char* summary;  // for openapi.json
  bool open = false;    // needs no key
};

/// nullptr: there is none. `allowed`: the methods that the path has.
const Route* find_route(const std::string& method, const std::string& path, std::string& allowed);

}  // namespace lmdeploy::proxy
