// The parsers of model output: thoughts and tool calls out of text that arrives in pieces.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lmdeploy/core/json.h"
#include "lmdeploy/parsers/output_delta.h"
#include "lmdeploy/parsers/parser_names.h"

namespace lmdeploy {

struct OutputParserOptions {
  OutputParserNames names;
  /// false (the request's enable_thinking): everything is the answer, tags included. gpt-oss always thinks.
  bool enable_thinking = true;
  /// prompt_opens_thought() of this request. Unset: what the reasoning parser assumes.
  std::optional<bool> prompt_opens_thought = std::nullopt;
  /// OpenAI's array of tools, or null: types the arguments of forms that write them as plain text.
  Json tools = nullptr;
  /// The text is calls and nothing else, because a grammar says so: where it breaks off, the last call is
  /// given as far as it goes (OutputDelta::cut_off), or left out while its function's name is not known.
  bool only_calls = false;
  /// Ids of calls that bring none. Unset: "chatcmpl-tool-" and random letters; for Mistral, whose templates
  /// take nothing else, nine random letters.
  std::function<std::string()> make_id = {};
};

/// One output. Text goes in as it comes, special tokens included (skip_special_tokens off: some markers are
/// special tokens). What comes out, joined, does not depend on the cuts.
/// - A thought is looked for first: a call inside a thought is a thought.
/// - A call is given out when it is complete and well-formed: the name is text, the arguments are a JSON
///   object. Until then nothing of it is known: a call that breaks off never reaches a client as half a call,
///   but with only_calls. Everything else is content; nothing is lost. Newlines in front of a call belong to
///   it, and so does white space around and between calls that no text follows.
/// Not thread-safe.
class OutputParser {
 public:
  /// Throws as OutputParserNames::validate.
  explicit OutputParser(OutputParserOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  OutputDelta push(std::string_view text);
  /// The text has ended. Nothing may be pushed after it; a second finish() gives nothing.
  OutputDelta finish();
  /// All deltas so far.
  const ParsedOutput& result() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// The whole text at once.
ParsedOutput parse_output(std::string_view text, OutputParserOptions options);

}  // namespace lmdeploy
