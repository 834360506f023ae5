// A ResponseFormat to a grammar over a vocabulary, and the grammars that have been compiled lately.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "lmdeploy/text/grammar/compiled_grammar.h"
#include "lmdeploy/text/grammar/response_format.h"

namespace lmdeploy::grammar {

/// Throws Error(kInvalidArgument) beginning with `where`. The format is not kText.
std::shared_ptr<const CompiledGrammar> compile(const ResponseFormat& format,
                                               std::shared_ptr<const Vocabulary> vocabulary,
                                               std::string_view where);

/// Grammars of one vocabulary, the least recently used forgotten first. Thread-safe; compiles on the caller's
/// thread.
class GrammarCache {
 public:
  /// `tokenizer` may be nullptr: then nothing can be compiled.
  explicit GrammarCache(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}
  std::shared_ptr<const CompiledGrammar> get(const ResponseFormat& format, std::string_view where);
  size_t size() const;
  static constexpr size_t kMost = 64;

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const CompiledGrammar>>;
  std::shared_ptr<const CompiledGrammar> find(const std::string& key);
  std::shared_ptr<const Vocabulary> vocabulary();

  const std::shared_ptr<const Tokenizer> tokenizer_;
  mutable std::mutex mutex_;  // guards the rest
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::list<Entry> entries_;  // the latest first
};

}  // namespace lmdeploy::grammar
