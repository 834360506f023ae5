// Messages to prompt text: Jinja templates that come with a model, and the built-in catalogue.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/core/json.h"

namespace lmdeploy {

struct RenderOptions {
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the last message is a prefill: cut right after it
  bool sequence_start = true;  // false: a later turn whose history is already in the cache (catalogue only)
  Json tools = nullptr;        // null or an array
  JsonObject extra = {};       // more variables for the template (enable_thinking, documents, ...)
};

/// Immutable; thread-safe.
///
/// Messages are OpenAI's: an array of {"role", "content", "tool_calls", ...}, or one text, which is a single
/// prompt. All templates take them alike:
/// - content: text, null (no text), or a list of parts. Text parts are joined by one "\n"; other parts go to
///   templates that take part lists and are refused by the rest.
/// - tool_calls[].function.arguments: a mapping or the JSON text of one; each template gets the kind it
/// prints.
///   Tools: OpenAI's {"type": "function", "function": {...}} or the functions themselves.
/// - A last message of the assistant is a prefill: the prompt ends right after its text, and no new turn is
///   opened (unless the template changes the text, or always opens a turn: the qwen2d5 family).
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  virtual std::string name() const = 0;  // catalogue name, or "jinja"
  /// Throws Error(kInvalidArgument) with the template's own words (raise_exception), or naming the role or
  /// field that it cannot take.
  virtual std::string render(const Json& messages, const RenderOptions& options = {}) const = 0;
  /// A single string prompt: one user message that opens the sequence, or a later turn.
  virtual std::string render_prompt(std::string_view prompt, const RenderOptions& options = {}) const;
  /// Stop words of the template; empty for Jinja ones (their end ids come with the tokenizer).
  virtual const std::vector<std::string>& stop_words() const = 0;
};

/// Fields of the catalogue form (spec: ChatTemplateConfig). Unset: the named template's own value.
struct ChatTemplateConfig {
  std::string model_name = {};
  std::optional<std::string> system = {}, meta_instruction = {}, eosys = {};
  std::optional<std::string> user = {}, eoh = {}, assistant = {}, eoa = {};
  std::optional<std::string> tool = {}, eotool = {}, separator = {};
  std::optional<std::string> capability = {};  // chat, completion, infilling, python
  std::optional<std::vector<std::string>> stop_words = {};

  /// From JSON text or a path to it. Throws Error(kInvalidArgument | kInvalidData) naming unknown keys.
  static ChatTemplateConfig from_json(const std::string& path_or_text);
};

/// A Jinja template; syntax errors throw Error(kInvalidData) with line.
std::shared_ptr<const ChatTemplate> make_jinja_template(const std::string& source,
                                                        const std::string& bos_token,
                                                        const std::string& eos_token);
/// The catalogue template `config.model_name` with the given fields replaced; an unknown name gives a generic
/// template that carries the given fields, with a warning.
std::shared_ptr<const ChatTemplate> make_catalogue_template(const ChatTemplateConfig& config);
/// Choice: explicit config > the checkpoint's own Jinja template > catalogue by path > "base".
std::shared_ptr<const ChatTemplate> choose_chat_template(const std::string& model_path,
                                                         const std::optional<ChatTemplateConfig>& config,
                                                         const std::string& jinja_source,
                                                         const std::string& bos_token,
                                                         const std::string& eos_token);
/// Names of the catalogue, sorted; deprecated aliases left out.
std::vector<std::string> chat_template_names();
/// Whether the catalogue knows `name`, deprecated aliases included.
bool is_chat_template_name(std::string_view name);

}  // namespace lmdeploy
