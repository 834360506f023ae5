// Server-sent events (HTML standard, 9.2) that hold JSON.
#pragma once

#include <boost/json.hpp>
#include <string>

#include "lmdeploy/core/json.h"

namespace lmdeploy::http {

/// The end of a stream in OpenAI's protocol, also of one that broke off.
inline constexpr const char* kDoneEvent = "data: [DONE]\n\n";

inline std::string sse_event(const Json& value) { return "data: " + to_json_text(value) + "\n\n"; }

/// The same with the value's "type" as the event's name.
inline std::string sse_named_event(const JsonObject& value) {
  return "event: " + std::string(value.at("type").as_string()) + "\n" + sse_event(value);
}

}  // namespace lmdeploy::http
