#include "lmdeploy/proxy/inquiry.h"

#include <boost/json.hpp>

#include "lmdeploy/core/error.h"
#include "lmdeploy/proxy/hash.h"

namespace lmdeploy::proxy {
namespace {

constexpr size_t kPrefixBytes = 1024;

/// A text, or the texts among the parts of a content.
void add_text(const Json& content, uint64_t& hash) {
  if (content.is_string()) {
    hash = hash_text(std::string_view(content.get_string()).substr(0, kPrefixBytes), hash);
  } else if (content.is_array()) {
    for (const Json& part : content.get_array()) {
      if (part.is_string()) add_text(part, hash);
      const Json* text = part.is_object() ? part.get_object().if_contains("text") : nullptr;
      if (text != nullptr && text->is_string()) add_text(*text, hash);
      if (part.is_int64()) hash = hash_text(std::to_string(part.get_int64()), hash);  // token ids
    }
  }
}

/// Up to the first message that is not an instruction.
void add_messages(const Json& messages, uint64_t& hash) {
  if (!messages.is_array()) return add_text(messages, hash);
  for (const Json& message : messages.get_array()) {
    if (!message.is_object()) return add_text(messages, hash);
    const Json* role = message.get_object().if_contains("role");
    if (const Json* content = message.get_object().if_contains("content")) add_text(*content, hash);
    const bool instructs = role != nullptr && (*role == "system" || *role == "developer");
    if (!instructs) return;
  }
}

}  // namespace

Inquiry read_inquiry(std::string_view body) {
  const Json json = parse_json(body, "request body");
  if (!json.is_object())
    throw Error(ErrorCode::kInvalidData,
                cat("request body: found ", json_kind(json), ", expected an object"));
  const JsonObject& object = json.get_object();
  Inquiry inquiry;
  if (const Json* model = object.if_contains("model"); model != nullptr && !model->is_null()) {
    if (!model->is_string())
      throw Error(ErrorCode::kInvalidData,
                  cat("request body: \"model\" is ", json_kind(*model), ", expected a string"));
    inquiry.model = std::string(model->get_string());
  }
  for (const char* key : {"system", "instructions", "prompt"})
    if (const Json* found = object.if_contains(key)) add_text(*found, inquiry.prefix);
  for (const char* key : {"messages", "input"})
    if (const Json* found = object.if_contains(key)) add_messages(*found, inquiry.prefix);
  return inquiry;
}

}  // namespace lmdeploy::proxy
