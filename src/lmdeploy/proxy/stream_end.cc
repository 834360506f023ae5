#include "lmdeploy/proxy/stream_end.h"

#include <boost/json.hpp>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json_events.h"
#include "lmdeploy/http/error_format.h"
#include "lmdeploy/http/sse.h"
#include "lmdeploy/proxy/replies.h"

namespace lmdeploy::proxy {
namespace {

constexpr size_t kMostOfFirstEvent = 1 << 20;  // bytes: it repeats instructions and tools
constexpr std::string_view kEventEnd = "\n\n";

/// The "response" of the event response.created; empty: it is none.
JsonObject response_in(const std::string& event) {
  JsonObject response;
  try {
    JsonEvents("a stream's first event").push(event, [&](const Json& data) {
      const JsonObject* object = data.if_object();
      const Json* found = object == nullptr ? nullptr : object->if_contains("response");
      if (response.empty() && found != nullptr && found->is_object()) response = found->get_object();
    });
  } catch (const Error&) {  // of other bytes than an api_server's
  }
  return response;
}

}  // namespace

StreamEnd::StreamEnd(const http::Request& request)
    : kind_(http::error_format(request) == http::ErrorFormat::kAnthropic ? Kind::kAnthropic
            : request.url.path == "/v1/responses"                        ? Kind::kResponses
                                                                         : Kind::kOpenAi) {}

void StreamEnd::see(std::string_view piece) {
  if (kind_ == Kind::kResponses && num_events_ == 0 && first_event_.size() < kMostOfFirstEvent)
    first_event_ += piece;
  for (const char c : piece) {
    if (last_two_.size() == 2) last_two_.erase(0, 1);
    last_two_ += c;
    if (last_two_ == kEventEnd) ++num_events_;
  }
}

std::string StreamEnd::failed_response(int status, const std::string& message) const {
  const JsonObject begun = response_in(first_event_);
  if (begun.empty()) return http::sse_event(JsonObject{{"error", http::openai_error(status, message)}});
  JsonObject event;
  event["type"] = "response.failed";
  event["sequence_number"] = num_events_ + (last_two_ == kEventEnd ? 0 : 1);
  event["response"] = http::failed_response(begun, message);
  return http::sse_named_event(event);
}

std::string StreamEnd::broken(int status, const std::string& message) const {
  const std::string before = last_two_ == kEventEnd ? "" : std::string(kEventEnd);
  switch (kind_) {
    case Kind::kAnthropic:
      return before + http::sse_named_event(http::anthropic_error(status, message));
    case Kind::kResponses:
      return before + failed_response(status, message);
    case Kind::kOpenAi:
      break;
  }
  JsonObject error{{"error", http::openai_error(status, message)}};
  add_node_error(error, kNodeFailed);
  return before + http::sse_event(error) + http::kDoneEvent;
}

}  // namespace lmdeploy::proxy
