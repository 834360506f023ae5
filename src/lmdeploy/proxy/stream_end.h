// How a stream ends whose node broke off: in the words of its protocol, as an api_server ends a failed one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lmdeploy/http/message.h"

namespace lmdeploy::proxy {

/// Sees what is passed on of an event stream.
class StreamEnd {
 public:
  explicit StreamEnd(const http::Request& request);

  void see(std::string_view piece);
  /// - /v1/messages: "event: error" with Anthropic's error.
  /// - /v1/responses: "event: response.failed" with the response that the stream began with.
  /// - all others: {"error": {...}, "error_code": 10402, "text"}, then [DONE].
  std::string broken(int status, const std::string& message) const;

 private:
  std::string failed_response(int status, const std::string& message) const;

  enum class Kind { kOpenAi, kAnthropic, kResponses };
  const Kind kind_;
  std::string first_event_;  // of responses; begins the stream
  std::string last_two_;     // bytes: an event ends with an empty line
  int64_t num_events_ = 0;   // that are complete
};

}  // namespace lmdeploy::proxy
