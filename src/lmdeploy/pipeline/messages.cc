#include "lmdeploy/pipeline/messages.h"

#include <boost/json/value.hpp>
#include <string>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

[[noreturn]] void refuse(const std::string& where, const Json* found, std::string_view expected) {
  const std::string_view kind = found == nullptr ? "nothing" : json_kind(*found);
  throw Error(ErrorCode::kInvalidArgument, cat(where, ": found ", kind, "; expected ", expected));
}

std::string require_text(const JsonObject& object, std::string_view key, const std::string& where) {
  const Json* value = object.if_contains(key);
  if (value == nullptr || !value->is_string()) refuse(cat(where, ".", key), value, "text");
  return std::string(value->get_string());
}

std::string text_of_part(const Json& part, const std::string& where) {
  if (part.is_string()) return std::string(part.get_string());
  if (!part.is_object()) refuse(where, &part, "an object with \"type\" and \"text\"");
  const std::string type = require_text(part.get_object(), "type", where);
  if (type != "text")
    throw Error(ErrorCode::kUnsupported,
                cat(where, ": parts of type \"", type,
                    "\" are not supported yet: models take text only; send \"text\" parts"));
  return require_text(part.get_object(), "text", where);
}

std::string join_parts(const JsonArray& parts, const std::string& where) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += '\n';
    text += text_of_part(parts[i], cat(where, "[", i, "]"));
  }
  return text;
}

Json normalize_message(const Json& message, const std::string& where) {
  if (!message.is_object()) refuse(where, &message, "an object with \"role\" and \"content\"");
  JsonObject object = message.get_object();
  require_text(object, "role", where);
  const bool calls_tools = object.contains("tool_calls");
  Json* content = object.if_contains("content");
  if (content == nullptr && calls_tools) content = &object["content"];
  if (content != nullptr && content->is_array()) {
    *content = join_parts(content->get_array(), where + ".content");
  } else if (content == nullptr || !(content->is_string() || (content->is_null() && calls_tools))) {
    refuse(where + ".content", content, "text or an array of parts");
  }
  return object;
}

}  // namespace

Json normalize_messages(const Json& messages) {
  if (!messages.is_array()) refuse("prompt", &messages, "text, an array of messages, or token ids");
  if (messages.get_array().empty())
    throw Error(ErrorCode::kInvalidArgument, "messages: the array is empty; expected at least one message");
  JsonArray normalized;
  size_t index = 0;
  for (const Json& message : messages.get_array())
    normalized.push_back(normalize_message(message, cat("messages[", index++, "]")));
  return normalized;
}

}  // namespace lmdeploy
