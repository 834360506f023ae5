// A grammar ready to constrain requests, and the matcher of one request.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lmdeploy/core/token_grammar.h"
#include "lmdeploy/text/grammar/automaton.h"

namespace lmdeploy::grammar {

class CompiledGrammar;

/// Copies are cheap, and are how to go back: a copy stays where it was.
class Matcher : public TokenMatcher {
 public:
  explicit Matcher(std::shared_ptr<const CompiledGrammar> grammar);

  void fill_mask(std::span<uint32_t> mask) override;
  bool accept(int token) override;
  bool can_stop() const override { return automaton_->accepts(state_); }
  bool is_complete() const override { return automaton_->is_complete(state_); }
  void guess(std::vector<int>& ids, size_t most) override;
  /// As accept(), of text in any pieces.
  bool accept_bytes(std::string_view bytes);
  /// What must come next, whatever is chosen after it; at most `most` bytes.
  std::string forced_bytes(size_t most = 256);

 private:
  void catch_up();

  std::shared_ptr<const CompiledGrammar> grammar_;
  std::shared_ptr<Automaton> automaton_;
  StateId state_ = kDead;
};

/// Immutable but for the states and masks that its requests have found, which are shared and bounded in size;
/// thread-safe.
class CompiledGrammar : public TokenGrammar, public std::enable_shared_from_this<CompiledGrammar> {
 public:
  CompiledGrammar(Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary,
                  std::vector<std::string> warnings = {});

  std::unique_ptr<TokenMatcher> start() const override;
  Matcher matcher() const { return Matcher(shared_from_this()); }
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  /// Parts of the schema that do not act.
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// The one that new states belong in; the former one, once it has grown too large, lives as long as its
  /// matchers.
  std::shared_ptr<Automaton> automaton() const;
  size_t num_nodes() const { return grammar_->nodes.size(); }

 private:
  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const std::vector<std::string> warnings_;
  mutable std::mutex mutex_;  // guards automaton_
  mutable std::shared_ptr<Automaton> automaton_;
};

}  // namespace lmdeploy::grammar
