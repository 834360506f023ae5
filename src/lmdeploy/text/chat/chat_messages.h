// What every chat template does with messages before it lays them out: checks, text of part lists, tools and
// tool calls in one form.
#pragma once

#include <string>
#include <string_view>

#include "lmdeploy/text/chat/chat_template.h"

namespace lmdeploy {

/// Text parts of one content are joined by this.
inline constexpr std::string_view kPartSeparator = "\n";

/// "messages[3]": for error messages.
std::string message_name(size_t index);
/// The messages as an array of objects that have a role. Throws Error(kInvalidArgument).
const JsonArray& checked_messages(const Json& messages);
std::string_view role_of(const JsonObject& message);

/// Whether `content` is a list of nothing but text parts.
bool is_text_parts(const Json& content);
/// The text of a content: text, null ("") or text parts. `where` names it in the Error for anything else.
std::string text_of_content(const Json* content, std::string_view where);
std::string text_of(const JsonObject& message, size_t index);

/// Tools as {"type": "function", "function": {...}}; null stays null. Throws Error(kInvalidArgument).
Json wrapped_tools(const Json& tools);
/// The functions alone; empty for null.
JsonArray tool_functions(const Json& tools);

/// Non-empty "tool_calls" of a message, or null.
const JsonArray* tool_calls_of(const JsonObject& message);
/// {"name", "arguments"} of a tool call, whether or not under "function".
const JsonObject& function_of_call(const Json& call, std::string_view where);
/// The arguments as a mapping; text is parsed, "" is {}. Throws Error(kInvalidArgument) naming `where`.
Json arguments_as_mapping(const Json& arguments, std::string_view where);
/// json.dumps(value, ensure_ascii=False): the way models have seen JSON written.
std::string python_json(const Json& value);

/// Throws Error(kInvalidArgument) for flags that exclude each other.
void check_render_options(const RenderOptions& options);

}  // namespace lmdeploy
