// One HTTP request at a time over libcurl; redirects are followed here, so that secrets stay with their host.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/hub/config.h"

namespace lmdeploy {

struct HttpRequest {
  std::string url = {};
  bool head = false;        // headers only
  int64_t begin = 0;        // > 0: from this byte on (Range)
  std::string secret = {};  // header line, "Authorization: Bearer ..."; sent to the host of `url` alone
  bool stay = false;        // a redirect to another host is the reply
  std::string json = {};    // not empty: POST with this body
};

struct HttpReply {
  long status = 0;                             // 0: none came
  std::string url;                             // that answered
  std::map<std::string, std::string> headers;  // of the last answer; names in lower case
  std::string error_body;                      // the beginning, unless status is 2xx
  std::vector<HttpReply> redirects;            // the answers before it, first one first
  std::string trouble;                         // what went wrong on the way; empty: the reply is complete
  bool retryable = false;                      // of trouble: whether another try may do better
  int64_t retry_after_s = 0;

  bool ok() const { return trouble.empty() && status >= 200 && status < 300; }
  /// "" when absent.
  std::string_view header(const std::string& name) const;
};

/// Takes a piece of the body of a 2xx reply whose status and headers are known. What it throws ends the
/// request and comes out of send().
using HttpSink = std::function<void(const HttpReply& reply, std::string_view bytes)>;

/// Not thread-safe. Keeps connections open between requests.
class HttpClient {
 public:
  /// `poll` is called about once a second or more often, also when nothing arrives; what it throws comes out
  /// of send().
  HttpClient(const HubPatience& patience, HubCertificates certificates, std::function<void()> poll);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Throws Error(kInvalidData) for a redirect that must not be followed.
  HttpReply send(const HttpRequest& request, const HttpSink& sink = {});

 private:
  struct Exchange;
  HttpReply send_once(const HttpRequest& request, const HttpSink& sink);

  HubPatience patience_;
  HubCertificates certificates_;
  std::function<void()> poll_;
  void* curl_;            // CURL
  bool reached_ = false;  // a server answered before
};

/// "scheme://host:port" of an http or https URL; empty for anything else.
std::string url_origin(const std::string& url);
/// Where a Location header leads; empty when that is no http or https URL, or one with a user name.
std::string resolve_url(const std::string& base, const std::string& location);

}  // namespace lmdeploy
