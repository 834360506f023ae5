// Patterns and special tokens of published rank files.
#include "lmdeploy/core/error.h"
#include "lmdeploy/text/files/json_fields.h"
#include "lmdeploy/text/files/tiktoken.h"
#include "lmdeploy/text/steps/pre_tokenizer.h"

namespace lmdeploy {
namespace {

// Source: tiktoken_ext/openai_public.py of tiktoken 0.9.
constexpr const char* kCl100k =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr const char* kO200k =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
// Source: tokenization_qwen.py of Qwen/Qwen-7B.
constexpr const char* kQwen =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

TiktokenRules gpt2_like() {
  return {.pattern = kGpt2Regex, .special_tokens = {{"<|endoftext|>", 50256}}, .eos = "<|endoftext|>"};
}

TiktokenRules cl100k() {
  return {.pattern = kCl100k,
          .special_tokens = {{"<|endoftext|>", 100257},
                             {"<|fim_prefix|>", 100258},
                             {"<|fim_middle|>", 100259},
                             {"<|fim_suffix|>", 100260},
                             {"<|endofprompt|>", 100276}},
          .eos = "<|endoftext|>"};
}

TiktokenRules o200k() {
  return {.pattern = kO200k,
          .special_tokens = {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}},
          .eos = "<|endoftext|>"};
}

TiktokenRules qwen() {
  constexpr int kNumRanks = 151643, kNumExtra = 205;
  TiktokenRules rules = {.pattern = kQwen,
                         .special_tokens = {{"<|endoftext|>", kNumRanks},
                                            {"<|im_start|>", kNumRanks + 1},
                                            {"<|im_end|>", kNumRanks + 2}},
                         .nfc = true,
                         .eos = "<|endoftext|>",
                         .end_of_turn = "<|im_end|>"};
  for (int i = 0; i < kNumExtra; ++i)
    rules.special_tokens.emplace_back(cat("<|extra_", i, "|>"), kNumRanks + 3 + i);
  return rules;
}

// Source: models/llama3/tokenizer.py of meta-llama/llama-models.
TiktokenRules llama3() {
  constexpr int kNumRanks = 128000, kNumSpecial = 256;
  TiktokenRules rules = {
      .pattern = kCl100k, .bos = "<|begin_of_text|>", .eos = "<|end_of_text|>", .end_of_turn = "<|eot_id|>"};
  const char* const names[] = {"<|begin_of_text|>",
                               "<|end_of_text|>",
                               "<|reserved_special_token_0|>",
                               "<|reserved_special_token_1|>",
                               "<|finetune_right_pad_id|>",
                               "<|step_id|>",
                               "<|start_header_id|>",
                               "<|end_header_id|>",
                               "<|eom_id|>",
                               "<|eot_id|>",
                               "<|python_tag|>",
                               "<|image|>"};
  int id = kNumRanks;
  for (const char* name : names) rules.special_tokens.emplace_back(name, id++);
  for (int i = 2; id < kNumRanks + kNumSpecial; ++i)
    rules.special_tokens.emplace_back(cat("<|reserved_special_token_", i, "|>"), id++);
  return rules;
}

struct KnownRules {
  std::string_view name;
  TiktokenRules (*rules)();
};
constexpr KnownRules kKnown[] = {{"gpt2", gpt2_like},     {"r50k_base", gpt2_like}, {"p50k_base", gpt2_like},
                                 {"cl100k_base", cl100k}, {"o200k_base", o200k},    {"qwen", qwen},
                                 {"llama3", llama3}};

}  // namespace

std::optional<TiktokenRules> find_tiktoken_rules(std::string_view name) {
  for (const KnownRules& known : kKnown)
    if (known.name == name) return known.rules();
  return std::nullopt;
}

std::string tiktoken_names() {
  std::string names;
  for (const KnownRules& known : kKnown) names += cat(names.empty() ? "" : ", ", known.name);
  return names;
}

TiktokenRules read_tiktoken_rules(const Json& json, const std::string& where) {
  const JsonFields fields(json, where);
  TiktokenRules rules;
  rules.pattern = fields.require_string("pat_str");
  rules.id_offset = fields.get_count("id_offset", Vocabulary::kMaxId - 1).value_or(0);
  const Json& special = fields.require("special_tokens");
  if (!special.is_object()) fields.fail("special_tokens", special, "an object of text: id");
  for (const auto& [text, id] : special.get_object()) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= Vocabulary::kMaxId || text.empty())
      fields.fail(cat("special_tokens: ", std::string_view(text)), id, "a token id");
    rules.special_tokens.emplace_back(text, static_cast<int>(id.get_int64()));
  }
  return rules;
}

}  // namespace lmdeploy
