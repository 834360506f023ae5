#include "lmdeploy/text/chat/chat_template_catalogue.h"

#include <algorithm>
#include <iterator>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/text/chat/chat_messages.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kCapabilities[] = {"chat", "completion", "infilling", "python"};

std::string chosen(const std::optional<std::string>& given, std::string_view own) {
  return given ? *given : std::string(own);
}

}  // namespace

CatalogueTemplate::CatalogueTemplate(const CatalogueEntry& entry, const ChatTemplateConfig& config)
    : entry_(entry),
      name_(config.model_name.empty() ? std::string(entry.name) : config.model_name),
      system_(chosen(config.system, entry.system)),
      eosys_(chosen(config.eosys, entry.eosys)),
      user_(chosen(config.user, entry.user)),
      eoh_(chosen(config.eoh, entry.eoh)),
      assistant_(chosen(config.assistant, entry.assistant)),
      eoa_(chosen(config.eoa, entry.eoa)),
      tool_(chosen(config.tool, entry.tool)),
      eotool_(chosen(config.eotool, entry.eotool)),
      separator_(chosen(config.separator, entry.separator)),
      meta_instruction_(config.meta_instruction),
      capability_(chosen(config.capability, entry.capability)) {
  if (!meta_instruction_ && entry.meta_instruction) meta_instruction_ = std::string(*entry.meta_instruction);
  for (const std::string_view word : entry.stop_words)
    if (!word.empty()) stop_words_.emplace_back(word);
  if (config.stop_words) stop_words_ = *config.stop_words;
  if (std::find(std::begin(kCapabilities), std::end(kCapabilities), capability_) == std::end(kCapabilities))
    throw Error(ErrorCode::kInvalidArgument, cat("chat template ", name_, ": capability \"", capability_,
                                                 "\"; expected chat, completion, infilling or python"));
}

std::string_view CatalogueTemplate::Conversation::role(size_t i) const {
  return i < messages.size() ? role_of(at(i)) : std::string_view();
}

void CatalogueTemplate::fail_role(const Conversation& conversation, size_t i) const {
  throw Error(ErrorCode::kInvalidArgument,
              cat(message_name(i), ": the chat template ", name_, " does not know the role \"",
                  conversation.role(i), "\"; expected system, user, assistant or tool"));
}

std::string CatalogueTemplate::render(const Json& messages, const RenderOptions& options) const {
  if (messages.is_string()) return render_prompt(messages.get_string(), options);
  check_options(options);
  return render_list(checked_messages(messages), options);
}

void CatalogueTemplate::check_options(const RenderOptions& options) const {
  check_render_options(options);
  if ((takes_tools() && capability_ == "chat") || tool_functions(options.tools).empty()) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      cat("tools: the chat template ", name_, capability_ == "chat" ? "" : cat(" (", capability_, ")"),
          " has no place for them; use a model whose template has one, or "
          "the checkpoint's own template (--chat-template hf)"));
}

std::string CatalogueTemplate::render_list(const JsonArray& messages, const RenderOptions& options) const {
  Conversation conversation{messages, options};
  for (Json& message : conversation.messages)  // OpenAI's newer name of "system"
    if (role_of(message.get_object()) == "developer") message.get_object()["role"] = "system";
  std::string out = options.sequence_start ? std::string(entry_.start) : std::string();
  out += opening(conversation);
  const size_t size = conversation.messages.size();
  if (options.continue_final_message && size == 0)
    throw Error(ErrorCode::kInvalidArgument, "continue_final_message: there are no messages");
  const bool prefill = prefills() && options.add_generation_prompt &&
                       conversation.role(size - 1) == "assistant" &&
                       tool_calls_of(conversation.at(size - 1)) == nullptr;
  const bool open_end = prefill || options.continue_final_message;
  for (size_t i = conversation.first; i < size; ++i) {
    out += box(conversation, i) + body(conversation, i);
    if (i + 1 < size || !open_end) out += end(conversation, i);
  }
  if (options.add_generation_prompt && !prefill) out += last_header() + closing(options);
  return out;
}

std::string CatalogueTemplate::render_prompt(std::string_view prompt, const RenderOptions& options) const {
  check_options(options);
  if (capability_ == "completion") return std::string(prompt);
  // The single-prompt form has no place for these two.
  const bool needs_list = !tool_functions(options.tools).empty() || closing(options) != closing({});
  std::string out = options.sequence_start ? std::string() : separator_;
  if (needs_list) return out + render(JsonArray{JsonObject{{"role", "user"}, {"content", prompt}}}, options);
  if (options.sequence_start) out += entry_.start;
  if (options.sequence_start && meta_instruction_) out += system_block({}, *meta_instruction_);
  out += user_;
  out += prompt;
  if (options.continue_final_message) return out;
  out += eoh_;
  return options.add_generation_prompt ? out + last_header() : out;
}

std::string CatalogueTemplate::system_block(std::string_view before, std::string_view instruction) const {
  return cat(system_, before, instruction, eosys_);
}

// A system message of the caller's takes the place of the template's own instruction.
std::string CatalogueTemplate::opening(Conversation& conversation) const {
  const bool own = meta_instruction_ && conversation.options.sequence_start &&
                   !conversation.messages.empty() && !conversation.begins_with_system();
  return own ? system_block(entry_.knowledge, *meta_instruction_) : std::string();
}

std::string CatalogueTemplate::box(const Conversation& conversation, size_t i) const {
  const std::string_view role = conversation.role(i);
  if (role == "user") return user_;
  if (role == "assistant") return assistant_;
  if (role == "system") return system_;
  if (role == "tool") return tool_;
  fail_role(conversation, i);
}

std::string CatalogueTemplate::body(const Conversation& conversation, size_t i) const {
  if (tool_calls_of(conversation.at(i)) != nullptr)
    LMD_LOG(kWarning, "the chat template ", name_,
            " has no place for tool calls; they are left out of the prompt");
  return text_of(conversation.at(i), i);
}

std::string CatalogueTemplate::end(const Conversation& conversation, size_t i) const {
  const std::string_view role = conversation.role(i);
  if (role == "user") return eoh_;
  if (role == "assistant") return eoa_ + separator_;
  return role == "system" ? eosys_ : eotool_;
}

std::string CatalogueTemplate::closing(const RenderOptions& options) const {
  const Json* thinking = options.extra.if_contains("enable_thinking");
  const bool no_thinking = thinking != nullptr && *thinking == Json(false);
  return std::string(no_thinking ? entry_.no_thinking_end : entry_.list_end);
}

std::string CatalogueTemplate::last_header() const {
  std::string header = assistant_;
  if (entry_.trims_header && capability_ == "chat" && header.ends_with(' ')) header.pop_back();
  return header;
}

bool changes_markers(const ChatTemplateConfig& config) {
  const std::optional<std::string>* const kMarkers[] = {&config.system, &config.eosys,     &config.user,
                                                        &config.eoh,    &config.assistant, &config.eoa,
                                                        &config.tool,   &config.eotool,    &config.separator};
  return std::any_of(std::begin(kMarkers), std::end(kMarkers),
                     [](const auto* marker) { return marker->has_value(); });
}

}  // namespace lmdeploy
