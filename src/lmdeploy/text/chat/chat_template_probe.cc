#include "lmdeploy/text/chat/chat_template_probe.h"

#include <optional>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

// Words that no template says by itself.
constexpr const char* kText = "prb0txt";
constexpr const char* kArgumentName = "prb0key";
constexpr const char* kArgumentValue = "prb0val";
constexpr const char* kResult = "prb0res";

bool contains(const std::string& text, std::string_view word) { return text.find(word) != std::string::npos; }

// What is printed for the messages; nothing if the template refuses them.
std::optional<std::string> render(const jinja::Template& jinja, JsonObject variables, JsonArray messages) {
  variables["messages"] = std::move(messages);
  std::string out;
  if (!jinja.try_render(variables, out)) return std::nullopt;
  return out;
}

JsonObject user_message(Json content) { return {{"role", "user"}, {"content", std::move(content)}}; }

void probe_parts(const jinja::Template& jinja, const JsonObject& base, TemplateTraits& traits) {
  const JsonArray parts{JsonObject{{"type", "text"}, {"text", kText}}};
  const auto from_text = render(jinja, base, {user_message(kText)});
  const auto from_parts = render(jinja, base, {user_message(parts)});
  const bool text_works = from_text && contains(*from_text, kText);
  const bool parts_work = from_parts && contains(*from_parts, kText);
  traits.wants_parts = !text_works && parts_work;
  traits.takes_parts = parts_work && (!text_works || *from_parts == *from_text);
}

// user, assistant with a tool call, tool result. The call's id is one that Mistral's templates accept.
JsonArray tool_conversation(Json arguments, TemplateTraits::NoContent no_content) {
  JsonObject call{{"id", "prb0cal01"},
                  {"type", "function"},
                  {"function", JsonObject{{"name", "prb0fun"}, {"arguments", std::move(arguments)}}}};
  JsonObject assistant{{"role", "assistant"}, {"tool_calls", JsonArray{std::move(call)}}};
  if (no_content == TemplateTraits::NoContent::kEmptyText) assistant["content"] = "";
  if (no_content == TemplateTraits::NoContent::kNull) assistant["content"] = nullptr;
  JsonObject result{
      {"role", "tool"}, {"tool_call_id", "prb0cal01"}, {"name", "prb0fun"}, {"content", kResult}};
  return {user_message(kText), std::move(assistant), std::move(result)};
}

JsonArray probe_tools() {
  return {
      parse_json(R"({"type": "function", "function": {"name": "prb0fun", "description": "d", "parameters": {
    "type": "object", "properties": {"p": {"type": "string", "description": "d"}}, "required": ["p"]}}})",
                 "probe")};
}

// A mapping is printed well when it is not printed as Python prints it; text, when its quotes are not
// escaped.
bool printed_well(const std::string& out, TemplateTraits::Arguments form) {
  if (!contains(out, kArgumentValue)) return false;
  if (form == TemplateTraits::Arguments::kMapping)
    return contains(out, kArgumentName) &&
           !contains(out, cat("'", kArgumentName, "': '", kArgumentValue, "'"));
  return contains(out, cat("\"", kArgumentName, "\": \"", kArgumentValue, "\""));
}

void probe_tool_calls(const jinja::Template& jinja, JsonObject base, TemplateTraits& traits) {
  using Traits = TemplateTraits;
  base["tools"] = probe_tools();
  const Json mapping = JsonObject{{kArgumentName, kArgumentValue}};
  const Json text(cat("{\"", kArgumentName, "\": \"", kArgumentValue, "\"}"));
  for (const auto form : {Traits::Arguments::kMapping, Traits::Arguments::kText})
    for (const auto none :
         {Traits::NoContent::kEmptyText, Traits::NoContent::kNull, Traits::NoContent::kMissing}) {
      const auto out =
          render(jinja, base, tool_conversation(form == Traits::Arguments::kMapping ? mapping : text, none));
      if (!out || !printed_well(*out, form)) continue;
      traits.arguments = form;
      traits.no_content = none;
      traits.drops_tool_results = !contains(*out, kResult);
      return;
    }
  const auto out = render(jinja, base, tool_conversation(mapping, traits.no_content));
  traits.drops_tool_results = out && !contains(*out, kResult);
}

void probe_developer(const jinja::Template& jinja, const JsonObject& base, TemplateTraits& traits) {
  const JsonObject developer{{"role", "developer"}, {"content", kResult}};
  const auto out = render(jinja, base, {developer, user_message(kText)});
  traits.refuses_developer = !out || !contains(*out, kResult);
}

}  // namespace

TemplateTraits probe_template(const jinja::Template& jinja, const JsonObject& base) {
  TemplateTraits traits;
  probe_parts(jinja, base, traits);
  if (traits.wants_parts) {  // tool conversations are written with text contents
    traits.arguments = TemplateTraits::Arguments::kMapping;
    return traits;
  }
  probe_tool_calls(jinja, base, traits);
  probe_developer(jinja, base, traits);
  return traits;
}

}  // namespace lmdeploy
