// A catalogue entry, with the caller's changes, as a ChatTemplate. Layouts that add to the generic rules
// derive from CatalogueTemplate (chat_template_layouts.cc).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/text/chat/catalogue.h"
#include "lmdeploy/text/chat/chat_template.h"

namespace lmdeploy {

class CatalogueTemplate : public ChatTemplate {
 public:
  /// Throws Error(kInvalidArgument) for a field that the entry's layout cannot use.
  CatalogueTemplate(const CatalogueEntry& entry, const ChatTemplateConfig& config);

  std::string name() const override { return name_; }
  const std::vector<std::string>& stop_words() const override { return stop_words_; }
  std::string render(const Json& messages, const RenderOptions& options) const override;
  std::string render_prompt(std::string_view prompt, const RenderOptions& options) const override;

 protected:
  /// A list of messages while it is laid out.
  struct Conversation {
    JsonArray messages;
    const RenderOptions& options;
    size_t first = 0;  // messages before it are in the opening

    const JsonObject& at(size_t i) const { return messages[i].get_object(); }
    /// "" before the first and behind the last message.
    std::string_view role(size_t i) const;
    bool begins_with_system() const { return role(0) == "system"; }
  };

  /// Throws for options that do not go together, and for tools where there is no place for them.
  void check_options(const RenderOptions& options) const;
  /// Everything before the first message.
  virtual std::string opening(Conversation& conversation) const;
  // The three parts of message `i`.
  virtual std::string box(const Conversation& conversation, size_t i) const;
  virtual std::string body(const Conversation& conversation, size_t i) const;
  virtual std::string end(const Conversation& conversation, size_t i) const;
  /// Behind the last `assistant`.
  virtual std::string closing(const RenderOptions& options) const;
  /// Whether a last message of the assistant is continued without being told.
  virtual bool prefills() const { return true; }
  virtual bool takes_tools() const { return false; }
  /// `assistant`, as it ends a prompt.
  std::string last_header() const;
  std::string system_block(std::string_view before, std::string_view instruction) const;
  [[noreturn]] void fail_role(const Conversation& conversation, size_t i) const;

  const CatalogueEntry& entry_;
  std::string name_;
  std::string system_, eosys_, user_, eoh_, assistant_, eoa_, tool_, eotool_, separator_;
  std::optional<std::string> meta_instruction_;
  std::string capability_;
  std::vector<std::string> stop_words_;

 private:
  std::string render_list(const JsonArray& messages, const RenderOptions& options) const;
};

/// Whether `config` changes text around messages or the system instruction.
bool changes_markers(const ChatTemplateConfig& config);
std::shared_ptr<const ChatTemplate> make_layout(const CatalogueEntry& entry,
                                                const ChatTemplateConfig& config);

}  // namespace lmdeploy
