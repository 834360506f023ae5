#include "lmdeploy/serve/openai/token_logprobs.h"

#include <algorithm>
#include <utility>

#include "lmdeploy/core/utf8.h"

namespace lmdeploy {
namespace {

/// What the token is in running text; of a special token its name.
std::string bytes_of(int id, const Tokenizer& tokenizer) {
  return tokenizer.is_special(id) ? std::string(tokenizer.token_text(id)) : tokenizer.token_bytes(id);
}

JsonObject token_entry(int id, float logprob, const Tokenizer& tokenizer) {
  const std::string bytes = bytes_of(id, tokenizer);
  JsonArray values;
  for (const char byte : bytes) values.emplace_back(static_cast<int64_t>(static_cast<uint8_t>(byte)));
  return {{"token", repair_utf8(bytes)}, {"logprob", logprob}, {"bytes", std::move(values)}};
}

/// The best `count`, the best first.
std::vector<std::pair<int, float>> best(const std::vector<std::pair<int, float>>& all, int count) {
  std::vector<std::pair<int, float>> sorted = all;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  sorted.resize(std::min(sorted.size(), static_cast<size_t>(count)));
  return sorted;
}

int64_t num_characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

}  // namespace

float chosen_logprob(const AnswerPiece& piece, size_t i) {
  for (const auto& [id, logprob] : piece.logprobs[i])
    if (id == piece.token_ids[i]) return logprob;
  return 0;
}

Json chat_logprobs(const AnswerPiece& piece, const Tokenizer& tokenizer, int num_top) {
  JsonArray content;
  for (size_t i = 0; i < piece.logprobs.size(); ++i) {
    JsonObject entry = token_entry(piece.token_ids[i], chosen_logprob(piece, i), tokenizer);
    JsonArray top;
    for (const auto& [id, logprob] : best(piece.logprobs[i], num_top))
      top.push_back(token_entry(id, logprob, tokenizer));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return JsonObject{{"content", std::move(content)}};
}

void CompletionLogprobs::add_unscored(int id) {
  add_token(repair_utf8(bytes_of(id, tokenizer_)));
  logprobs_.emplace_back(nullptr);
  tops_.emplace_back(nullptr);
}

void CompletionLogprobs::add(int id, float logprob, const std::vector<std::pair<int, float>>& top) {
  const std::string token = repair_utf8(bytes_of(id, tokenizer_));
  JsonObject by_text;  // of tokens with one text the best one
  for (const auto& [other, value] : best(top, num_top_))
    by_text.emplace(repair_utf8(bytes_of(other, tokenizer_)), value);
  by_text.emplace(token, logprob);
  add_token(token);
  logprobs_.emplace_back(logprob);
  tops_.push_back(std::move(by_text));
}

void CompletionLogprobs::add(const AnswerPiece& piece) {
  for (size_t i = 0; i < piece.logprobs.size(); ++i)
    add(piece.token_ids[i], chosen_logprob(piece, i), piece.logprobs[i]);
}

void CompletionLogprobs::add_token(const std::string& text) {
  tokens_.emplace_back(text);
  offsets_.emplace_back(offset_);
  offset_ += num_characters(text);
}

Json CompletionLogprobs::take() {
  return JsonObject{{"tokens", std::exchange(tokens_, {})},
                    {"token_logprobs", std::exchange(logprobs_, {})},
                    {"top_logprobs", std::exchange(tops_, {})},
                    {"text_offset", std::exchange(offsets_, {})}};
}

}  // namespace lmdeploy
