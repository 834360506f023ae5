#include "lmdeploy/serve/openai/token_logprobs.h"

#include <algorithm>

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

float chosen_logprob(const AnswerPiece& piece, size_t i) {
  for (const auto& [id, logprob] : piece.logprobs[i])
    if (id == piece.token_ids[i]) return logprob;
  return 0;
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

Json completion_logprobs(const AnswerPiece& piece, const Tokenizer& tokenizer, int num_top, int64_t& offset) {
  JsonArray tokens, logprobs, tops, offsets;
  for (size_t i = 0; i < piece.logprobs.size(); ++i) {
    const std::string token = repair_utf8(bytes_of(piece.token_ids[i], tokenizer));
    offsets.emplace_back(offset);
    offset += num_characters(token);
    logprobs.emplace_back(chosen_logprob(piece, i));
    JsonObject top;
    for (const auto& [id, logprob] : best(piece.logprobs[i], num_top))
      top[repair_utf8(bytes_of(id, tokenizer))] = logprob;
    top[token] = chosen_logprob(piece, i);
    tops.push_back(std::move(top));
    tokens.emplace_back(token);
  }
  return JsonObject{{"tokens", std::move(tokens)},
                    {"token_logprobs", std::move(logprobs)},
                    {"top_logprobs", std::move(tops)},
                    {"text_offset", std::move(offsets)}};
}

}  // namespace lmdeploy
