// Server-sent events (HTML standard, 9.2), as OpenAI streams them.
#pragma once

#include <string>

#include "lmdeploy/core/json.h"
#include "lmdeploy/http/message.h"
#include "lmdeploy/serve/api_error.h"

namespace lmdeploy {

inline constexpr const char* kDoneEvent = "data: [DONE]\n\n";

inline std::string sse_event(const Json& value) { return "data: " + to_json_text(value) + "\n\n"; }

/// What a stream says when it breaks off: {"error": {...}}.
inline std::string sse_error(const ApiErrorInfo& info) {
  JsonObject event;
  event["error"] = error_object(info);
  return sse_event(event);
}

/// The head of a stream; nothing on the way may keep or gather its events.
inline http::Response sse_head() {
  http::Response head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers.add("Cache-Control", "no-cache");
  head.headers.add("X-Accel-Buffering", "no");
  return head;
}

}  // namespace lmdeploy
