#include "lmdeploy/text/chat/chat_messages.h"

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/print.h"

namespace lmdeploy {
namespace {

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

// The text of one part; null when it is another kind of part.
const Json* part_text(const Json& part) {
  if (part.is_string()) return &part;
  const JsonObject* object = part.if_object();
  if (object == nullptr) return nullptr;
  const Json* type = object->if_contains("type");
  const Json* text = object->if_contains("text");
  const bool is_text = type == nullptr || *type == Json("text");
  return is_text && text != nullptr && text->is_string() ? text : nullptr;
}

std::string part_kind(const Json& part) {
  const JsonObject* object = part.if_object();
  const Json* type = object != nullptr ? object->if_contains("type") : nullptr;
  return type != nullptr && type->is_string()
             ? cat("a part of type \"", std::string(type->get_string()), "\"")
             : std::string(json_kind(part));
}

const JsonObject& function_of_tool(const Json& tool, size_t index) {
  const JsonObject* object = tool.if_object();
  if (object == nullptr) fail(cat("tools[", index, "]: found ", json_kind(tool), "; expected an object"));
  const Json* function = object->if_contains("function");
  const JsonObject* inner = function != nullptr ? function->if_object() : object;
  const Json* name = inner != nullptr ? inner->if_contains("name") : nullptr;
  if (name == nullptr || !name->is_string()) fail(cat("tools[", index, "]: the function has no name"));
  return *inner;
}

}  // namespace

std::string message_name(size_t index) { return cat("messages[", index, "]"); }

const JsonArray& checked_messages(const Json& messages) {
  const JsonArray* array = messages.if_array();
  if (array == nullptr)
    fail(cat("messages: found ", json_kind(messages), "; expected a list of messages or text"));
  for (size_t i = 0; i < array->size(); ++i) {
    const JsonObject* message = (*array)[i].if_object();
    if (message == nullptr)
      fail(cat(message_name(i), ": found ", json_kind((*array)[i]), "; expected an object"));
    const Json* role = message->if_contains("role");
    if (role == nullptr || !role->is_string()) fail(cat(message_name(i), ": role is missing or not text"));
  }
  return *array;
}

std::string_view role_of(const JsonObject& message) { return message.at("role").get_string(); }

bool is_text_parts(const Json& content) {
  if (!content.is_array()) return false;
  for (const Json& part : content.get_array())
    if (part_text(part) == nullptr) return false;
  return true;
}

std::string text_of_content(const Json* content, std::string_view where) {
  if (content == nullptr || content->is_null()) return {};
  if (content->is_string()) return std::string(content->get_string());
  if (!content->is_array())
    fail(cat(where, ": found ", json_kind(*content), "; expected text or a list of parts"));
  std::string text;
  for (size_t i = 0; i < content->get_array().size(); ++i) {
    const Json& part = content->get_array()[i];
    const Json* piece = part_text(part);
    if (piece == nullptr)
      fail(cat(where, "[", i, "]: found ", part_kind(part), "; this chat template takes text parts only"));
    if (i > 0) text += kPartSeparator;
    text += piece->get_string();
  }
  return text;
}

std::string text_of(const JsonObject& message, size_t index) {
  return text_of_content(message.if_contains("content"), message_name(index) + ".content");
}

Json wrapped_tools(const Json& tools) {
  if (tools.is_null()) return {};
  const JsonArray functions = tool_functions(tools);
  JsonArray wrapped;
  for (size_t i = 0; i < functions.size(); ++i) {
    const Json& tool = tools.get_array()[i];  // what else it says of itself stays
    const bool is_wrapped = tool.get_object().contains("function");
    wrapped.push_back(is_wrapped ? tool : JsonObject{{"type", "function"}, {"function", functions[i]}});
  }
  return wrapped;
}

JsonArray tool_functions(const Json& tools) {
  if (tools.is_null()) return {};
  if (!tools.is_array()) fail(cat("tools: found ", json_kind(tools), "; expected a list of functions"));
  JsonArray functions;
  for (size_t i = 0; i < tools.get_array().size(); ++i)
    functions.push_back(function_of_tool(tools.get_array()[i], i));
  return functions;
}

const JsonArray* tool_calls_of(const JsonObject& message) {
  const Json* calls = message.if_contains("tool_calls");
  return calls != nullptr && calls->is_array() && !calls->get_array().empty() ? &calls->get_array() : nullptr;
}

const JsonObject& function_of_call(const Json& call, std::string_view where) {
  const JsonObject* object = call.if_object();
  const Json* function = object != nullptr ? object->if_contains("function") : nullptr;
  if (function != nullptr) object = function->if_object();
  const Json* name = object != nullptr ? object->if_contains("name") : nullptr;
  if (name == nullptr || !name->is_string()) fail(cat(where, ": the tool call has no function name"));
  return *object;
}

Json arguments_as_mapping(const Json& arguments, std::string_view where) {
  if (arguments.is_null()) return JsonObject();
  if (!arguments.is_string()) return arguments;
  const std::string text(arguments.get_string());
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return JsonObject();
  Json parsed;
  try {
    parsed = parse_json(text, cat(where, ".arguments"));
  } catch (const Error& error) {  // the request's fault here, not a file's
    fail(error.what());
  }
  if (!parsed.is_object())
    fail(cat(where, ".arguments: found the JSON of ", json_kind(parsed), "; expected that of an object"));
  return parsed;
}

std::string python_json(const Json& value) { return jinja::to_json(jinja::from_json(value), {}); }

void check_render_options(const RenderOptions& options) {
  if (options.continue_final_message && options.add_generation_prompt)
    fail(
        "continue_final_message and add_generation_prompt are both true; a prompt either continues the last "
        "message or opens a new one");
}

}  // namespace lmdeploy
