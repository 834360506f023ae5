// The built-in chat templates: what they are, as data.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lmdeploy {

/// How the fields of an entry become a prompt (chat_template_catalogue.h).
enum class Layout {
  kGeneric,     // boxes around messages
  kQwen,        // and tools in the system block, tool results in user blocks
  kLlama31,     // and functions before the instruction, ipython blocks
  kInternlm2,   // and plugin and interpreter messages
  kCodellama,   // and infilling
  kChatglm,     // numbered rounds
  kJoined,      // contents one after the other, no markers
  kPromptOnly,  // single prompts, no messages
};

/// Empty text: nothing is printed there.
struct CatalogueEntry {
  std::string_view name;
  std::string_view aliases = {};    // other names of the same template, blanks between
  std::string_view old_names = {};  // deprecated names, accepted but not listed
  bool listed = true;
  Layout layout = Layout::kGeneric;
  std::string_view capability = "chat";
  std::string_view start = {};                            // where a sequence starts
  std::string_view system = {};                           // before the system instruction
  std::optional<std::string_view> meta_instruction = "";  // unset: no system block of its own
  std::string_view knowledge = {};                        // before meta_instruction, in lists of messages
  std::string_view eosys = {};                            // after the system instruction
  std::string_view user = {}, eoh = {};                   // before and after a user message
  std::string_view assistant = {}, eoa = {};              // before and after an assistant message
  std::string_view tool = {}, eotool = {};                // before and after a tool message
  std::string_view separator = {};                        // between rounds
  std::string_view list_end = {};                         // closes the prompt of a list of messages
  std::string_view no_thinking_end = {};                  // the same, with enable_thinking false
  bool trims_header = false;                              // the last `assistant` loses its trailing blank
  std::string_view stop_words[4] = {};                    // up to the first empty one
};

/// By name, alias or deprecated name; null if there is none.
const CatalogueEntry* find_catalogue_entry(std::string_view name);
/// The name of the template for a model path, by substrings of the model's own folder or, if no rule fits
/// that, of the next one above it that a rule fits; case is ignored. null if there is none.
const std::string_view* match_model_path(std::string_view path);

}  // namespace lmdeploy
