// A small HTTP server on 127.0.0.1 that does what a test tells it, good and bad.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lmdeploy::testing {

struct StandInRequest {
  std::string method, target;                  // "GET", "/a/b?c=d"
  std::map<std::string, std::string> headers;  // names in lower case
};

struct StandInReply {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  int64_t cut_after = -1;            // >= 0: so many bytes of the body, then the connection is closed
  std::function<void()> stall = {};  // called at that point instead of closing, or before the headers
  bool says_length = true;           // Content-Length, from the whole body
};

/// What a test changes before url() or requests(), handlers called later see; and the other way round.
class HttpStandIn {
 public:
  using Handler = std::function<StandInReply(const StandInRequest&)>;  // one call at a time
  explicit HttpStandIn(Handler handler);
  ~HttpStandIn();
  HttpStandIn(const HttpStandIn&) = delete;
  HttpStandIn& operator=(const HttpStandIn&) = delete;

  std::string url() const;  // "http://127.0.0.1:PORT"
  std::vector<StandInRequest> requests() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmdeploy::testing
