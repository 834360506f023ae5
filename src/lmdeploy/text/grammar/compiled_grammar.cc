#include "lmdeploy/text/grammar/compiled_grammar.h"

#include <algorithm>

#include "lmdeploy/core/error.h"

namespace lmdeploy::grammar {
namespace {

constexpr size_t kMostMemory = size_t{64} << 20;  // of an automaton

}  // namespace

Matcher::Matcher(std::shared_ptr<const CompiledGrammar> grammar)
    : grammar_(std::move(grammar)), automaton_(grammar_->automaton()), state_(automaton_->start()) {}

void Matcher::catch_up() {
  std::shared_ptr<Automaton> current = grammar_->automaton();
  if (current == automaton_) return;
  state_ = current->state(automaton_->plain(state_));
  automaton_ = std::move(current);
}

void Matcher::fill_mask(std::span<uint32_t> mask) {
  catch_up();
  const std::shared_ptr<const Bits> bits = automaton_->mask(state_);
  const size_t words = std::min(mask.size(), bits->size());
  std::copy_n(bits->begin(), words, mask.begin());
  std::fill(mask.begin() + static_cast<std::ptrdiff_t>(words), mask.end(), 0);
}

bool Matcher::accept(int token) {
  const std::string_view bytes = grammar_->vocabulary().bytes(token);
  return !bytes.empty() && accept_bytes(bytes);
}

bool Matcher::accept_bytes(std::string_view bytes) {
  catch_up();
  const StateId next = automaton_->after(state_, bytes);
  if (next == kDead) return false;
  state_ = next;
  return true;
}

std::string Matcher::forced_bytes(size_t most) {
  catch_up();
  return automaton_->forced(state_, most);
}

// In the longest tokens there are: mostly those that a tokenizer would take.
void Matcher::guess(std::vector<int>& ids, size_t most) {
  const std::string text = forced_bytes();
  std::string_view left = text;
  for (; most > 0 && !left.empty(); --most) {
    const int id = grammar_->vocabulary().longest_at(left);
    if (id < 0) return;
    ids.push_back(id);
    left.remove_prefix(grammar_->vocabulary().bytes(id).size());
  }
}

CompiledGrammar::CompiledGrammar(Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary,
                                 std::vector<std::string> warnings)
    : grammar_(std::make_shared<const Grammar>(std::move(grammar))),
      vocabulary_(std::move(vocabulary)),
      warnings_(std::move(warnings)),
      automaton_(std::make_shared<Automaton>(grammar_, vocabulary_)) {}

std::unique_ptr<TokenMatcher> CompiledGrammar::start() const {
  return std::make_unique<Matcher>(shared_from_this());
}

std::shared_ptr<Automaton> CompiledGrammar::automaton() const {
  const std::lock_guard lock(mutex_);
  if (automaton_->memory() > kMostMemory) automaton_ = std::make_shared<Automaton>(grammar_, vocabulary_);
  return automaton_;
}

}  // namespace lmdeploy::grammar
