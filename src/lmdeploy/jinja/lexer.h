// Template source to tokens: white space control, comments, raw blocks, literals.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/jinja/value.h"

namespace lmdeploy::jinja {

enum class TokenKind {
  kData,  // text between tags, after white space control
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kLiteral,   // text, integer or float
  kOperator,  // `text` holds it
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // data, name or operator
  Value literal;     // of kLiteral
  int line = 1;      // counted from 1
};

/// A syntax error and its line.
class SyntaxFailure : public Failure {
 public:
  SyntaxFailure(const std::string& message, int line) : Failure(message), line_(line) {}
  int line() const { return line_; }

 private:
  int line_;
};

/// Tokens as jinja2 makes them with trim_blocks and lstrip_blocks on; ends with one kEnd. Throws
/// SyntaxFailure.
std::vector<Token> tokenize(std::string_view source);

}  // namespace lmdeploy::jinja
