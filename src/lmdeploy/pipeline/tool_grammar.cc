#include "lmdeploy/pipeline/tool_grammar.h"

#include <algorithm>
#include <optional>

#include "lmdeploy/core/error.h"
#include "lmdeploy/parsers/call_grammar.h"

namespace lmdeploy {
namespace {

/// A call as {"name": ..., ARGUMENTS: {...}} between two texts.
struct CallTexts {
  std::string prefix, suffix;
  std::string_view arguments;
};

// <tag>, the object, </tag>; or the object alone.
std::optional<CallTexts> texts_of(const CallForm& form) {
  using Kind = Step::Kind;
  const std::span<const Step> s = form.steps;
  const bool tagged = s.size() > 4 && s[0].kind == Kind::kLiteral && s[1].kind == Kind::kSpace &&
                      s[2].kind == Kind::kObject && s[2].capture == Capture::kCallObject &&
                      s[3].kind == Kind::kSpace && s[4].kind == Kind::kLiteral && s[4].text.starts_with("</");
  if (tagged) return CallTexts{cat(s[0].text, "\n"), cat("\n", s[4].text), "arguments"};
  if (form.opens_output && s[0].kind == Kind::kObject) return CallTexts{"", "", "parameters"};
  return std::nullopt;
}

CallTexts texts_of(std::string_view parser) {
  const ToolFormat* format = find_tool_format(parser);
  if (format == nullptr)
    throw Error(ErrorCode::kInvalidArgument,
                cat("tool_choice: found the unknown tool-call parser \"", parser, "\""));
  for (const CallForm& form : format->forms)
    if (auto texts = texts_of(form)) return *texts;
  throw Error(ErrorCode::kUnsupported,
              cat("tool_choice: calls in the form of \"", parser,
                  "\" cannot be required: they are no JSON objects between fixed texts; use \"auto\""));
}

// The schema stands at `place` of a larger one now.
void move_references(Json& schema, const std::string& place) {
  if (auto* list = schema.if_array())
    for (Json& item : *list) move_references(item, place);
  auto* object = schema.if_object();
  if (object == nullptr) return;
  for (auto& entry : *object) {
    const std::string_view key = entry.key();
    if (key == "enum" || key == "const" || key == "default" || key == "examples") continue;
    auto* text = entry.value().if_string();
    const bool moves = key == "$ref" && text != nullptr && (*text == "#" || text->starts_with("#/"));
    if (moves)
      entry.value() = cat("#", place, std::string_view(*text).substr(1));
    else
      move_references(entry.value(), place);
  }
}

const JsonObject& function_of(const Json& tool, size_t index) {
  const auto refuse = [&](std::string_view found, std::string_view expected) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("tools[", index, "]: found ", found, "; expected ", expected));
  };
  if (!tool.is_object()) refuse(json_kind(tool), "an object");
  const Json* inner = tool.get_object().if_contains("function");
  const Json& function = inner != nullptr ? *inner : tool;
  if (!function.is_object()) refuse(json_kind(function), "a function: an object");
  const Json* name = function.get_object().if_contains("name");
  if (name == nullptr || !name->is_string()) refuse("a function without a name", "\"name\", a string");
  return function.get_object();
}

Json call_schema(const JsonObject& function, const std::string& place, std::string_view arguments) {
  const Json* parameters = function.if_contains("parameters");
  Json schema = parameters == nullptr || parameters->is_null()
                    ? Json{{"type", "object"}, {"maxProperties", 0}}
                    : *parameters;
  move_references(schema, cat(place, "/properties/", arguments));
  JsonObject properties;
  properties["name"] = JsonObject{{"const", function.at("name")}};
  properties[arguments] = std::move(schema);
  return JsonObject{{"type", "object"},
                    {"properties", std::move(properties)},
                    {"required", JsonArray{"name", boost::json::string(arguments)}},
                    {"additionalProperties", false}};
}

}  // namespace

ResponseFormat tool_call_format(const Json& tools, std::string_view function, std::string_view parser,
                                bool several) {
  CallTexts texts = texts_of(parser);
  if (!tools.is_array() || tools.get_array().empty())
    throw Error(ErrorCode::kInvalidArgument,
                cat("tools: found ", tools.is_array() ? "an empty list" : json_kind(tools),
                    "; expected a list of tools"));
  JsonArray calls;
  for (size_t i = 0; i < tools.get_array().size(); ++i) {
    const JsonObject& one = function_of(tools.get_array()[i], i);
    if (!function.empty() && std::string_view(one.at("name").get_string()) != function) continue;
    calls.push_back(call_schema(one, cat("/anyOf/", calls.size()), texts.arguments));
  }
  if (calls.empty())
    throw Error(ErrorCode::kInvalidArgument,
                cat("tool_choice: none of the tools is named \"", function, "\""));
  ResponseFormat format;
  format.kind = ResponseFormat::Kind::kJsonSchema;
  format.schema = JsonObject{{"anyOf", std::move(calls)}};
  format.prefix = std::move(texts.prefix);
  format.suffix = std::move(texts.suffix);
  if (several && !format.suffix.empty()) format.separator = "\n";
  return format;
}

}  // namespace lmdeploy
