// Keeps a server among the nodes of a request proxy: --proxy-url.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lmdeploy/http/client.h"

namespace lmdeploy {

struct ProxyRegistrationOptions {
  std::string proxy_url;                      // http://host:port
  bool tls = false;                           // of this server
  std::string host;                           // of this server; empty: the address that it shows to the proxy
  int port = 0;                               // of this server
  std::vector<std::string> models;            // the names that it serves
  std::string api_key;                        // that the proxy asks for; empty: none
  std::chrono::milliseconds interval{5'000};  // between two looks at the proxy's list
  std::chrono::milliseconds timeout{3'000};   // of each request
};

/// Registers at once, and whenever the proxy does not list the server: it may start later, or again. What
/// fails is logged and tried again. Has a thread of its own.
class ProxyRegistration {
 public:
  /// Throws Error(kInvalidArgument) for a URL that is none.
  explicit ProxyRegistration(ProxyRegistrationOptions options);
  /// Takes the server from the list.
  ~ProxyRegistration();
  ProxyRegistration(const ProxyRegistration&) = delete;
  ProxyRegistration& operator=(const ProxyRegistration&) = delete;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmdeploy
