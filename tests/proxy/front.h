// A proxy between raw clients and fake nodes, and what tests ask of it.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "../http/raw_client.h"
#include "fake_node.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/proxy/proxy.h"

namespace lmdeploy::testing {

/// Fails when the condition does not come true within 20 seconds.
void poll_until(const std::string& what, const std::function<bool()>& condition);

/// Probes nodes every few milliseconds.
proxy::ProxyOptions quick_probes(proxy::ProxyOptions options = {});

inline const std::string kBody = R"({"model": "m", "messages": "hi"})";
inline const std::string kStream = R"({"model": "m", "messages": "hi", "stream": true})";
inline const char* const kChat = "/v1/chat/completions";

class Front {
 public:
  explicit Front(proxy::ProxyOptions options = quick_probes()) : proxy_(std::move(options)) {}

  proxy::Proxy& operator*() { return proxy_; }
  proxy::Proxy* operator->() { return &proxy_; }
  RawClient connect() const { return RawClient(proxy_.port()); }
  /// The answer to the request for the node.
  std::string add(const std::string& url, const std::string& status = "null") const;
  void add(const FakeNode& node) const;
  Json status() const;
  void await_up(const std::string& url, bool up);
  void expect_nothing_unfinished();

 private:
  proxy::Proxy proxy_;
};

/// Sends `count` requests over `concurrency` connections; the number that did not give 200.
int send_many(const Front& front, int count, int concurrency, const std::string& body = kBody);

/// What a client gets of a stream of a fake node.
std::string whole_stream(int chunks = 3);

}  // namespace lmdeploy::testing
