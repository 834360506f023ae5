// Server-sent events as this server streams them.
#pragma once

#include <string>

#include "lmdeploy/core/json.h"
#include "lmdeploy/http/message.h"
#include "lmdeploy/http/sse.h"
#include "lmdeploy/serve/api_error.h"

namespace lmdeploy {

using http::kDoneEvent;
using http::sse_event;

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
