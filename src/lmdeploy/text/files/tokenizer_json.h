// Reads Hugging Face's tokenizer.json and the files that go with it.
#pragma once

#include <string>

#include "lmdeploy/core/json.h"
#include "lmdeploy/text/composed_tokenizer.h"
#include "lmdeploy/text/files/json_fields.h"

namespace lmdeploy {

/// `where` (the path) begins error messages. Throws Error(kInvalidData | kUnsupported).
TokenizerParts read_tokenizer_json(const Json& json, const std::string& where);

/// An entry of added_tokens, or of added_tokens_decoder in tokenizer_config.json.
AddedToken read_added_token(const JsonFields& fields);

/// What tokenizer_config.json, special_tokens_map.json, added_tokens.json and chat_template.jinja in the
/// folder change and add. Missing files are no error.
void apply_tokenizer_config(const std::string& folder, TokenizerParts& parts);

/// Whether text after a special token gets a "▁" in front, as it does unless tokenizer_config.json says
/// "legacy": false.
bool uses_legacy_prefix(const std::string& folder);

}  // namespace lmdeploy
