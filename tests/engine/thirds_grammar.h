// A grammar over token ids.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/token_grammar.h"

namespace lmdeploy::testing {

/// Token i has to leave the rest i % 3 when divided by 3; whole from `least` tokens on, over at `most`.
struct ThirdsGrammar : TokenGrammar {
  ThirdsGrammar(int least_tokens, int most_tokens) : least(least_tokens), most(most_tokens) {}

  struct Matcher : TokenMatcher {
    explicit Matcher(const ThirdsGrammar& of) : grammar(of) {}
    bool may_come(int token) const { return count < grammar.most && token % 3 == count % 3; }
    void fill_mask(std::span<uint32_t> mask) override {
      if (count == grammar.fails_at) throw Error(ErrorCode::kResourceExhausted, "response_format: too much");
      std::ranges::fill(mask, 0);
      for (size_t id = 0; id < mask.size() * 32; ++id)
        if (may_come(static_cast<int>(id))) mask[id / 32] |= 1u << (id % 32);
    }
    bool accept(int token) override {
      if (!may_come(token)) return false;
      ++count;
      return true;
    }
    void guess(std::vector<int>& ids, size_t most) override {
      for (int next = count; grammar.guesses && next < grammar.most && ids.size() < most; ++next)
        ids.push_back(next % 3);
    }
    bool can_stop() const override { return count >= grammar.least; }
    bool is_complete() const override { return count >= grammar.most; }
    const ThirdsGrammar& grammar;
    int count = 0;
  };
  std::unique_ptr<TokenMatcher> start() const override { return std::make_unique<Matcher>(*this); }

  int least, most, fails_at = -1;
  bool guesses = false;  // the least ids that fit
};

}  // namespace lmdeploy::testing
