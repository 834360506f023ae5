// tokenizer_config.json, special_tokens_map.json, added_tokens.json and chat_template.jinja: what
// transformers does with them.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/text/files/tokenizer_json.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

struct ConfigFile {
  std::string path;
  Json json;  // {} when there is no such file
  JsonFields fields() const { return {json, path}; }
};

ConfigFile read_config(const fs::path& path) {
  return {path.string(), fs::exists(path) ? read_json_file(path.string()) : Json(JsonObject())};
}

// A special token's entry: a string, or an object with its text in "content".
AddedToken read_special(const Json& value, const std::string& where) {
  AddedToken token;
  if (const auto* text = value.if_string()) {
    token.content = std::string(*text);
  } else {
    token = read_added_token(JsonFields(value, where));
  }
  token.special = true;
  return token;
}

// The config files of a folder; a field of tokenizer_config.json hides that of special_tokens_map.json.
class ConfigFiles {
 public:
  explicit ConfigFiles(const fs::path& folder)
      : files_{read_config(folder / "tokenizer_config.json"),
               read_config(folder / "special_tokens_map.json")},
        added_tokens_(read_config(folder / "added_tokens.json")),
        slow_(!fs::exists(folder / "tokenizer.json")) {}

  JsonFields config() const { return files_[0].fields(); }
  const ConfigFile& added_tokens() const { return added_tokens_; }
  /// Whether transformers runs its Python tokenizer here: added tokens keep the ids that the files give them,
  /// and are looked for in the text as it is.
  bool slow() const { return slow_; }
  std::optional<AddedToken> special_token(std::string_view key) const {
    for (const ConfigFile& file : files_)
      if (const Json* value = file.fields().find(key)) return read_special(*value, cat(file.path, ": ", key));
    return std::nullopt;
  }
  std::vector<AddedToken> additional_special_tokens() const {
    constexpr std::string_view kKey = "additional_special_tokens";
    std::vector<AddedToken> tokens;
    for (const ConfigFile& file : files_)
      if (tokens.empty())
        for (const Json& token : file.fields().get_array(kKey))
          tokens.push_back(read_special(token, cat(file.path, ": ", kKey)));
    return tokens;
  }

 private:
  ConfigFile files_[2];
  ConfigFile added_tokens_;
  bool slow_;
};

constexpr std::string_view kSpecialTokenKeys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                  "pad_token", "cls_token", "mask_token"};

struct NumberedToken {
  int id;
  AddedToken token;
};

// added_tokens_decoder: {"id": {"content": ...}}
std::vector<NumberedToken> read_added_tokens_decoder(const JsonFields& config) {
  std::vector<NumberedToken> tokens;
  const Json& entries = config.require("added_tokens_decoder");
  if (!entries.is_object()) config.fail("added_tokens_decoder", entries, "an object");
  for (const auto& [key, entry] : entries.get_object()) {
    const std::string_view digits = key;
    int id = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
    if (error != std::errc() || end != digits.data() + digits.size() || id < 0 || id >= Vocabulary::kMaxId)
      config.fail("added_tokens_decoder", Json(digits), "token ids as keys");
    tokens.push_back(
        {id, read_added_token({entry, cat(config.where(), ": added_tokens_decoder: ", digits)})});
  }
  return tokens;
}

// added_tokens.json: {"text": id}. Which of them are special stands elsewhere.
std::vector<NumberedToken> read_added_tokens_file(const ConfigFiles& files) {
  const JsonFields fields = files.added_tokens().fields();
  std::set<std::string> special;
  for (const std::string_view key : kSpecialTokenKeys)
    if (const auto token = files.special_token(key)) special.insert(token->content);
  for (const AddedToken& token : files.additional_special_tokens()) special.insert(token.content);
  std::vector<NumberedToken> tokens;
  for (const auto& [text, id] : files.added_tokens().json.get_object()) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= Vocabulary::kMaxId)
      fields.fail(text, id, "a token id");
    AddedToken token;
    token.content = text;
    token.special = special.contains(token.content);
    token.normalized = !token.special;
    tokens.push_back({static_cast<int>(id.get_int64()), std::move(token)});
  }
  return tokens;
}

// Tokens of the config with their flags, then named special tokens that are no added tokens yet.
void add_config_tokens(const ConfigFiles& files, TokenizerParts& parts) {
  const bool has_decoder = files.config().find("added_tokens_decoder") != nullptr;
  auto tokens = has_decoder ? read_added_tokens_decoder(files.config()) : read_added_tokens_file(files);
  std::stable_sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (NumberedToken& numbered : tokens) {
    if (!files.slow()) {
      parts.add_token(numbered.token);
    } else {
      numbered.token.normalized = false;
      parts.add_token(numbered.token, numbered.id);
    }
  }
  const auto add_special = [&](AddedToken token) {
    if (parts.added_tokens.find(token.content)) return;
    if (files.slow()) token.normalized = false;
    parts.add_token(token);
  };
  for (const std::string_view key : kSpecialTokenKeys)
    if (const auto token = files.special_token(key)) add_special(*token);
  for (const AddedToken& token : files.additional_special_tokens()) add_special(token);
}

// Classes whose add_bos_token is on when the config does not mention it (LlamaTokenizerFast.__init__ and
// GemmaTokenizerFast.__init__ in transformers 4.51).
bool adds_bos_by_default(const std::string& tokenizer_class) {
  for (const char* family : {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer"})
    if (tokenizer_class == family || tokenizer_class == cat(family, "Fast")) return true;
  return false;
}

// Puts one BOS in front, or takes it away; likewise EOS at the end.
void apply_bos_and_eos(const JsonFields& config, TokenizerParts& parts) {
  const bool by_default = adds_bos_by_default(config.get_string("tokenizer_class").value_or(""));
  auto add_bos = config.get_bool("add_bos_token");
  if (!add_bos && by_default) add_bos = true;
  if (add_bos && parts.bos_id) {
    std::vector<int>& ids = parts.prefix_ids;
    const bool there = !ids.empty() && ids.front() == *parts.bos_id;
    if (*add_bos && !there) ids.insert(ids.begin(), *parts.bos_id);
    if (!*add_bos && there) ids.erase(ids.begin());
  } else if (add_bos.value_or(false)) {
    LMD_LOG(kWarning, config.where(),
            ": a BOS token is to be added, but bos_token is not set; none is added");
  }
  const auto add_eos = config.get_bool("add_eos_token");
  if (!add_eos || !parts.eos_id) return;
  std::vector<int>& ids = parts.suffix_ids;
  const bool there = !ids.empty() && ids.back() == *parts.eos_id;
  if (*add_eos && !there) ids.push_back(*parts.eos_id);
  if (!*add_eos && there) ids.pop_back();
}

// A string, or [{"name": ..., "template": ...}]: "default", else the first.
std::string read_chat_template(const JsonFields& config) {
  const Json* value = config.find("chat_template");
  if (value == nullptr) return {};
  if (const auto* text = value->if_string()) return std::string(*text);
  std::optional<std::string> chosen;
  for (const Json& entry : config.get_array("chat_template")) {
    const JsonFields named(entry, cat(config.where(), ": chat_template"));
    if (!chosen || named.require_string("name") == "default") chosen = named.require_string("template");
  }
  return chosen.value_or("");
}

}  // namespace

void apply_tokenizer_config(const std::string& folder, TokenizerParts& parts) {
  const ConfigFiles files{fs::path(folder)};
  const JsonFields config = files.config();
  add_config_tokens(files, parts);
  if (const auto bos = files.special_token("bos_token")) parts.bos_token = bos->content;
  if (const auto eos = files.special_token("eos_token")) parts.eos_token = eos->content;
  if (!parts.bos_token.empty()) parts.bos_id = parts.find_token(parts.bos_token);
  if (!parts.eos_token.empty()) parts.eos_id = parts.find_token(parts.eos_token);
  apply_bos_and_eos(config, parts);
  if (config.get_bool("clean_up_tokenization_spaces", false)) add_space_clean_up(parts.decoder);
  parts.chat_template = read_chat_template(config);
  const fs::path jinja = fs::path(folder) / "chat_template.jinja";
  if (fs::exists(jinja)) parts.chat_template = read_file(jinja.string());
}

bool uses_legacy_prefix(const std::string& folder) {
  return read_config(fs::path(folder) / "tokenizer_config.json").fields().get_bool("legacy", true);
}

}  // namespace lmdeploy
