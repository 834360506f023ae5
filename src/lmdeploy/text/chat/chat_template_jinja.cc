#include "lmdeploy/text/chat/chat_template_jinja.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <set>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/jinja/unicode.h"
#include "lmdeploy/text/chat/chat_messages.h"

namespace lmdeploy {
namespace {

// Roles of the OpenAI interface: passed to every template. Others must be spelled in its source.
constexpr std::string_view kCommonRoles[] = {"system", "developer", "user", "assistant", "tool"};

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

class JinjaTemplate final : public ChatTemplate {
 public:
  JinjaTemplate(const std::string& source, const std::string& bos_token, const std::string& eos_token,
                JinjaOverrides overrides)
      : jinja_(source), overrides_(std::move(overrides)) {
    // transformers passes none for what is not given; templates ask `is defined` and `if tools` alike.
    base_ = {{"tools", nullptr}, {"documents", nullptr}, {"bos_token", bos_token}, {"eos_token", eos_token}};
    base_["add_generation_prompt"] = true;
    traits_ = probe_template(jinja_, base_);
  }

  std::string name() const override { return "jinja"; }
  const std::vector<std::string>& stop_words() const override { return overrides_.stop_words; }

  std::string render(const Json& messages, const RenderOptions& options) const override {
    if (messages.is_string()) return render_prompt(messages.get_string(), options);
    check_render_options(options);
    const JsonArray prepared = prepare(checked_messages(messages));
    if (options.continue_final_message) return render_continued(prepared, options);
    if (options.add_generation_prompt && is_prefill(prepared))
      if (const auto prompt = cut_after_content(run(prepared, options, false), final_text(prepared)))
        return *prompt;
    return run(prepared, options, options.add_generation_prompt);
  }

  std::string render_prompt(std::string_view prompt, const RenderOptions& options) const override {
    return overrides_.raw_prompts ? std::string(prompt) : ChatTemplate::render_prompt(prompt, options);
  }

 private:
  std::string run(const JsonArray& messages, const RenderOptions& options, bool add_generation_prompt) const {
    JsonObject variables = base_;
    variables["tools"] = wrapped_tools(options.tools);
    if (options.tools.is_array() && !options.tools.get_array().empty()) warn_if_unused("tools");
    for (const auto& [key, value] : options.extra) {
      variables[key] = value;
      warn_if_unused(key);
    }
    variables["messages"] = messages;
    variables["add_generation_prompt"] = add_generation_prompt;
    for (const char* own : {"messages", "add_generation_prompt"})
      if (options.extra.contains(own))
        fail(cat("extra template variables: \"", own, "\" is a field of its own"));
    std::string text = jinja_.render(variables);  // a refusal in the template's own words comes first
    check_tool_results(messages);
    return text;
  }

  // Scripts pass enable_thinking to any model, so that this is no error; once a name is enough.
  void warn_if_unused(std::string_view variable) const {
    if (jinja_.has_name(variable)) return;
    const std::lock_guard lock(warned_mutex_);
    if (warned_.emplace(variable).second)
      LMD_LOG(kWarning, "the chat template does not use \"", variable, "\": it has no effect");
  }

  void check_tool_results(const JsonArray& messages) const {
    if (!traits_.drops_tool_results) return;
    for (size_t i = 0; i < messages.size(); ++i)
      if (role_of(messages[i].get_object()) == "tool")
        fail(cat(message_name(i), ": the chat template has no place for the role \"tool\""));
  }

  std::string render_continued(const JsonArray& messages, const RenderOptions& options) const {
    if (messages.empty()) fail("continue_final_message: there are no messages");
    const std::string text = final_text(messages);
    if (text.empty()) fail("continue_final_message: the last message has no text");
    if (auto prompt = cut_after_content(run(messages, options, false), text)) return *prompt;
    fail(
        "continue_final_message: the chat template changes the text of the last message, so there is no "
        "place "
        "to continue it");
  }

  static bool is_prefill(const JsonArray& messages) {
    if (messages.empty()) return false;
    const JsonObject& last = messages.back().get_object();
    return role_of(last) == "assistant" && tool_calls_of(last) == nullptr && !final_text(messages).empty();
  }

  // The last text of the last message: of its last text part when it is a list.
  static std::string final_text(const JsonArray& messages) {
    const Json* content = messages.back().get_object().if_contains("content");
    if (content == nullptr) return {};
    if (content->is_string()) return std::string(content->get_string());
    if (!content->is_array()) return {};
    const JsonArray& parts = content->get_array();
    for (auto part = parts.rbegin(); part != parts.rend(); ++part)
      if (part->is_object())
        if (const Json* text = part->get_object().if_contains("text"); text != nullptr && text->is_string())
          return std::string(text->get_string());
    return {};
  }

  // The messages in the form that this template understands.
  JsonArray prepare(const JsonArray& messages) const {
    JsonArray prepared;
    const bool has_system = !messages.empty() && role_of(messages[0].get_object()) == "system";
    if (overrides_.meta_instruction && !has_system)
      prepared.push_back(JsonObject{{"role", "system"}, {"content", *overrides_.meta_instruction}});
    for (size_t i = 0; i < messages.size(); ++i) {
      JsonObject message = messages[i].get_object();
      check_role(message, i);
      prepare_content(message, i);
      prepare_tool_calls(message, i);
      prepared.push_back(std::move(message));
    }
    return prepared;
  }

  void check_role(JsonObject& message, size_t index) const {
    const std::string role(role_of(message));
    const bool common =
        std::find(std::begin(kCommonRoles), std::end(kCommonRoles), role) != std::end(kCommonRoles);
    if (!common && !jinja_.has_literal(role))
      fail(cat(message_name(index), ": the chat template does not know the role \"", role,
               "\"; expected system, user, assistant or tool"));
    // OpenAI's newer name of "system"; most templates are older than it.
    if (role == "developer" && traits_.refuses_developer && !jinja_.has_literal(role))
      message["role"] = "system";
  }

  void prepare_content(JsonObject& message, size_t index) const {
    const Json* content = message.if_contains("content");
    const bool is_list = content != nullptr && content->is_array();
    if (is_list && traits_.takes_parts && !is_text_parts(*content)) return;
    const bool empty = content == nullptr || content->is_null() || *content == Json("");
    if (empty && tool_calls_of(message) != nullptr) {
      set_no_content(message);
      return;
    }
    std::string text = text_of(message, index);
    if (traits_.wants_parts)
      message["content"] = JsonArray{JsonObject{{"type", "text"}, {"text", text}}};
    else
      message["content"] = text;
  }

  void set_no_content(JsonObject& message) const {
    if (traits_.no_content == TemplateTraits::NoContent::kMissing)
      message.erase("content");
    else if (traits_.no_content == TemplateTraits::NoContent::kNull)
      message["content"] = nullptr;
    else
      message["content"] = "";
  }

  void prepare_tool_calls(JsonObject& message, size_t index) const {
    const JsonArray* calls = tool_calls_of(message);
    if (calls == nullptr) {
      message.erase("tool_calls");  // null and [] say the same
      return;
    }
    JsonArray prepared;
    for (size_t i = 0; i < calls->size(); ++i) {
      const std::string where = cat(message_name(index), ".tool_calls[", i, "]");
      function_of_call((*calls)[i], where);  // checks
      JsonObject call = (*calls)[i].get_object();
      JsonObject& function = call.contains("function") ? call["function"].get_object() : call;
      prepare_arguments(function, where);
      prepared.push_back(std::move(call));
    }
    message["tool_calls"] = std::move(prepared);
  }

  void prepare_arguments(JsonObject& function, std::string_view where) const {
    Json& arguments = function["arguments"];
    if (traits_.arguments == TemplateTraits::Arguments::kMapping)
      arguments = arguments_as_mapping(arguments, where);
    else if (traits_.arguments == TemplateTraits::Arguments::kText && !arguments.is_string())
      arguments = python_json(arguments.is_null() ? Json(JsonObject()) : arguments);
  }

  jinja::Template jinja_;
  JinjaOverrides overrides_;
  JsonObject base_;
  TemplateTraits traits_;
  mutable std::mutex warned_mutex_;
  mutable std::set<std::string> warned_;  // names of variables
};

}  // namespace

std::optional<std::string> cut_after_content(const std::string& rendered, std::string_view content) {
  using jinja::Side;
  using jinja::strip_space;
  const std::string_view stripped = strip_space(content);
  if (stripped.empty()) return std::nullopt;
  const size_t at = rendered.rfind(stripped);
  if (at == std::string::npos) return std::nullopt;
  const bool kept = std::string_view(rendered).substr(at).starts_with(content);
  return rendered.substr(0, at + (kept ? content.size() : stripped.size()));
}

std::shared_ptr<const ChatTemplate> make_jinja_template(const std::string& source,
                                                        const std::string& bos_token,
                                                        const std::string& eos_token,
                                                        JinjaOverrides overrides) {
  return std::make_shared<JinjaTemplate>(source, bos_token, eos_token, std::move(overrides));
}

std::shared_ptr<const ChatTemplate> make_jinja_template(const std::string& source,
                                                        const std::string& bos_token,
                                                        const std::string& eos_token) {
  return make_jinja_template(source, bos_token, eos_token, JinjaOverrides{});
}

}  // namespace lmdeploy
