// A Jinja template as a ChatTemplate.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/text/chat/chat_template.h"
#include "lmdeploy/text/chat/chat_template_probe.h"

namespace lmdeploy {

/// What a ChatTemplateConfig without a template of its own changes on the checkpoint's template.
struct JinjaOverrides {
  std::optional<std::string> meta_instruction;  // a system message where the conversation begins without one
  bool raw_prompts = false;  // single prompts are passed on as they are (capability completion)
  std::vector<std::string> stop_words;
};

std::shared_ptr<const ChatTemplate> make_jinja_template(const std::string& source,
                                                        const std::string& bos_token,
                                                        const std::string& eos_token,
                                                        JinjaOverrides overrides);

/// `rendered` up to the end of its last occurrence of `content`, as transformers cuts it: white space at the
/// ends of the content counts only if the template kept it. Nothing if the content does not occur.
std::optional<std::string> cut_after_content(const std::string& rendered, std::string_view content);

}  // namespace lmdeploy
