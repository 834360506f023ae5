// Layouts of the catalogue that add rules of their own: tools, infilling, numbered rounds.
#include "lmdeploy/core/error.h"
#include "lmdeploy/text/chat/catalogue_texts.h"
#include "lmdeploy/text/chat/chat_messages.h"
#include "lmdeploy/text/chat/chat_template_catalogue.h"

namespace lmdeploy {
namespace {

std::string without_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string call_name(const Json& call, size_t message, size_t index) {
  const std::string where = cat(message_name(message), ".tool_calls[", index, "]");
  return std::string(function_of_call(call, where).at("name").get_string());
}

// The arguments of a call as JSON text.
std::string call_arguments(const Json& call, size_t message, size_t index) {
  const std::string where = cat(message_name(message), ".tool_calls[", index, "]");
  const Json* arguments = function_of_call(call, where).if_contains("arguments");
  return python_json(arguments_as_mapping(arguments != nullptr ? *arguments : Json(), where));
}

// Calls body(name, arguments) for each tool call of message i.
template <typename Body>
void for_each_call(const JsonObject& message, size_t i, Body body) {
  const JsonArray* calls = tool_calls_of(message);
  for (size_t k = 0; calls != nullptr && k < calls->size(); ++k)
    body(call_name((*calls)[k], i, k), call_arguments((*calls)[k], i, k));
}

class QwenTemplate final : public CatalogueTemplate {
 public:
  using CatalogueTemplate::CatalogueTemplate;

 protected:
  bool takes_tools() const override { return true; }
  bool prefills() const override { return false; }

  std::string opening(Conversation& conversation) const override {
    const JsonArray functions = tool_functions(conversation.options.tools);
    if (functions.empty()) return CatalogueTemplate::opening(conversation);
    std::string instruction = meta_instruction_.value_or("");
    if (conversation.begins_with_system()) {
      instruction = text_of(conversation.at(0), 0);
      conversation.first = 1;
    }
    instruction += kQwenToolsBegin;
    for (const Json& function : functions)
      instruction += cat("\n{\"type\": \"function\", \"function\": ", python_json(function), "}");
    return system_block({}, cat(instruction, kQwenToolsEnd));
  }

  std::string box(const Conversation& conversation, size_t i) const override {
    if (conversation.role(i) == "tool")
      return i > 0 && conversation.role(i - 1) == "tool" ? "" : without_newline(user_);
    const bool calls = tool_calls_of(conversation.at(i)) != nullptr;
    return calls ? without_newline(assistant_) : CatalogueTemplate::box(conversation, i);
  }

  std::string body(const Conversation& conversation, size_t i) const override {
    const std::string text = text_of(conversation.at(i), i);
    if (conversation.role(i) == "tool") return cat("\n<tool_response>\n", text, "\n</tool_response>");
    if (tool_calls_of(conversation.at(i)) == nullptr) return text;
    std::string out = text.empty() ? "" : "\n" + text;
    for_each_call(conversation.at(i), i, [&](const std::string& name, const std::string& arguments) {
      out += cat("\n<tool_call>\n{\"name\": ", python_json(Json(name)), ", \"arguments\": ", arguments,
                 "}\n</tool_call>");
    });
    return out;
  }

  std::string end(const Conversation& conversation, size_t i) const override {
    if (conversation.role(i) == "tool") return conversation.role(i + 1) == "tool" ? "" : eoh_;
    const bool calls = tool_calls_of(conversation.at(i)) != nullptr;
    return calls ? eosys_ : CatalogueTemplate::end(conversation, i);
  }
};

class Llama31Template final : public CatalogueTemplate {
 public:
  using CatalogueTemplate::CatalogueTemplate;

 protected:
  bool takes_tools() const override { return true; }

  std::string opening(Conversation& conversation) const override {
    const std::string tools = tool_section(conversation.options.tools);
    if (tools.empty()) return CatalogueTemplate::opening(conversation);
    if (conversation.begins_with_system()) {
      conversation.first = 1;
      return system_block(tools, text_of(conversation.at(0), 0));
    }
    return system_block(cat(entry_.knowledge, tools), meta_instruction_.value_or(""));
  }

  std::string box(const Conversation& conversation, size_t i) const override {
    return conversation.role(i) == "ipython" ? tool_ : CatalogueTemplate::box(conversation, i);
  }

  // Calls are written as the tool section asks the model to write them.
  std::string body(const Conversation& conversation, size_t i) const override {
    std::string out = text_of(conversation.at(i), i);
    for_each_call(conversation.at(i), i, [&](const std::string& name, const std::string& arguments) {
      out += cat("<function=", name, ">", arguments, "</function>");
    });
    return out;
  }

  // A turn that waits for a tool's answer is not over.
  std::string end(const Conversation& conversation, size_t i) const override {
    if (conversation.role(i) == "assistant") {
      const std::string text = body(conversation, i);
      const bool calls =
          text.find("<|python_tag|>") != std::string::npos || text.find("</function>") != std::string::npos;
      if (calls) return "<|eom_id|>";
    }
    return CatalogueTemplate::end(conversation, i);
  }

 private:
  static std::string tool_section(const Json& tools) {
    const JsonArray functions = tool_functions(tools);
    if (functions.empty()) return {};
    std::string out(kLlama31ToolsBegin);
    for (const Json& function : functions) {
      const JsonObject& object = function.get_object();
      const Json* description = object.if_contains("description");
      out += cat("Use the function '", std::string(object.at("name").get_string()),
                 "' to: ", text_of_content(description, "tools: description"), "\n", python_json(function),
                 "\n");
    }
    return out.append(kLlama31ToolsEnd);
  }
};

class Internlm2Template final : public CatalogueTemplate {
 public:
  using CatalogueTemplate::CatalogueTemplate;

 protected:
  bool takes_tools() const override { return true; }

  // The tools become a message of their own, behind the system instruction.
  std::string opening(Conversation& conversation) const override {
    std::string out = CatalogueTemplate::opening(conversation);
    const JsonArray functions = tool_functions(conversation.options.tools);
    if (functions.empty()) return out;
    const auto at = conversation.messages.begin() + (conversation.begins_with_system() ? 1 : 0);
    conversation.messages.insert(
        at, JsonObject{{"role", "system"}, {"name", "plugin"}, {"content", python_json(functions)}});
    return out;
  }

  std::string box(const Conversation& conversation, size_t i) const override {
    const std::string plain =
        conversation.role(i) == "environment" ? tool_ : CatalogueTemplate::box(conversation, i);
    const Json* name = conversation.at(i).if_contains("name");
    for (const char* special : {"plugin", "interpreter"})
      if (name != nullptr && *name == Json(special))
        return cat(without_newline(plain), " name=<|", special, "|>\n");
    return plain;
  }

  std::string body(const Conversation& conversation, size_t i) const override {
    std::string out = text_of(conversation.at(i), i);
    for_each_call(conversation.at(i), i, [&](const std::string& name, const std::string& arguments) {
      out += cat("<|action_start|><|plugin|>\n{\"name\": ", python_json(Json(name)),
                 ", \"parameters\": ", arguments, "}<|action_end|>");
    });
    return out;
  }
};

class CodellamaTemplate final : public CatalogueTemplate {
 public:
  CodellamaTemplate(const CatalogueEntry& entry, const ChatTemplateConfig& config)
      : CatalogueTemplate(entry, config) {
    if (capability_ == "infilling" && !config.stop_words) stop_words_ = {"<EOT>"};
  }

  std::string render_prompt(std::string_view prompt, const RenderOptions& options) const override {
    check_options(options);
    if (capability_ == "infilling") return infilling(prompt, options);
    return capability_ == "python" ? std::string(prompt) : CatalogueTemplate::render_prompt(prompt, options);
  }

 private:
  std::string infilling(std::string_view prompt, const RenderOptions& options) const {
    constexpr std::string_view kFill = "<FILL>";
    const size_t at = prompt.find(kFill);
    if (at == std::string_view::npos || prompt.find(kFill, at + 1) != std::string_view::npos)
      throw Error(ErrorCode::kInvalidArgument,
                  "infilling: the prompt must contain <FILL> once, where text is missing");
    const std::string_view before = prompt.substr(0, at), after = prompt.substr(at + kFill.size());
    const Json* suffix_first = options.extra.if_contains("suffix_first");
    if (suffix_first != nullptr && *suffix_first == Json(true))
      return cat("<PRE> <SUF>", after, " <MID> ", before);
    return cat("<PRE> ", before, " <SUF>", after, " <MID>");
  }
};

// Markers are part of the layout and cannot be changed.
class FixedTemplate : public CatalogueTemplate {
 public:
  FixedTemplate(const CatalogueEntry& entry, const ChatTemplateConfig& config)
      : CatalogueTemplate(entry, config) {
    if (changes_markers(config) || config.meta_instruction)
      throw Error(ErrorCode::kInvalidArgument,
                  cat("chat template ", name_,
                      ": its markers and instruction cannot be changed; use another name for a "
                      "template of your own"));
  }
};

class ChatglmTemplate final : public FixedTemplate {
 public:
  using FixedTemplate::FixedTemplate;

  // A single prompt is always the first round: the template keeps no state between requests.
  std::string render_prompt(std::string_view prompt, const RenderOptions& options) const override {
    check_options(options);
    if (capability_ == "completion") return std::string(prompt);
    return render(JsonArray{JsonObject{{"role", "user"}, {"content", prompt}}}, options);
  }

 protected:
  std::string box(const Conversation& conversation, size_t i) const override {
    if (conversation.role(i) == "user") return cat("[Round ", round(conversation, i), "]\n\n问：");
    if (conversation.role(i) != "assistant" && conversation.role(i) != "system") fail_role(conversation, i);
    return {};
  }
  std::string body(const Conversation& conversation, size_t i) const override {
    return conversation.role(i) == "system"
               ? ""
               : CatalogueTemplate::body(conversation, i);  // has no place for it
  }
  std::string end(const Conversation& conversation, size_t i) const override {
    if (conversation.role(i) != "user") return {};
    const bool opens_answer =
        i + 1 < conversation.messages.size() || conversation.options.add_generation_prompt;
    return opens_answer ? "\n\n答：" : "\n\n";
  }

 private:
  static size_t round(const Conversation& conversation, size_t i) {
    size_t rounds = 0;
    for (size_t k = 0; k <= i; ++k) rounds += conversation.role(k) == "user" ? 1 : 0;
    return rounds;
  }
};

class PromptOnlyTemplate final : public FixedTemplate {
 public:
  using FixedTemplate::FixedTemplate;
  std::string render(const Json& messages, const RenderOptions& options) const override {
    if (messages.is_string()) return render_prompt(messages.get_string(), options);
    throw Error(ErrorCode::kInvalidArgument,
                cat("messages: the chat template ", name_,
                    " is for plain text and takes a single prompt; use \"base\" to join "
                    "the contents of messages"));
  }
};

}  // namespace

std::shared_ptr<const ChatTemplate> make_layout(const CatalogueEntry& entry,
                                                const ChatTemplateConfig& config) {
  switch (entry.layout) {
    case Layout::kGeneric:
      return std::make_shared<CatalogueTemplate>(entry, config);
    case Layout::kQwen:
      return std::make_shared<QwenTemplate>(entry, config);
    case Layout::kLlama31:
      return std::make_shared<Llama31Template>(entry, config);
    case Layout::kInternlm2:
      return std::make_shared<Internlm2Template>(entry, config);
    case Layout::kCodellama:
      return std::make_shared<CodellamaTemplate>(entry, config);
    case Layout::kChatglm:
      return std::make_shared<ChatglmTemplate>(entry, config);
    case Layout::kJoined:
      return std::make_shared<FixedTemplate>(entry, config);
    case Layout::kPromptOnly:
      return std::make_shared<PromptOnlyTemplate>(entry, config);
  }
  LMD_CHECK(false, "layout ", static_cast<int>(entry.layout));
}

}  // namespace lmdeploy
