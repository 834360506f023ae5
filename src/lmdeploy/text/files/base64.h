// Base64, in which tokenizer files keep bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lmdeploy {

/// Standard alphabet, with or without padding; nothing when `text` is none.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace lmdeploy
