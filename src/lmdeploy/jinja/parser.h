// Tokens to syntax tree, by recursive descent; the grammar is jinja2's.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/jinja/ast.h"
#include "lmdeploy/jinja/lexer.h"

namespace lmdeploy::jinja {

/// A tree taller than this, or source nested deeper, is a syntax error: recursion over it stays in the stack.
constexpr int kMaxTreeHeight = 200;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  /// Throws SyntaxFailure.
  Body parse();

 private:
  // Statements: parser.cc.
  Body parse_body(std::initializer_list<std::string_view> end_tags);
  Statement parse_tag();
  Statement parse_if();
  Statement parse_for();
  Statement parse_set();
  Statement parse_macro();
  Statement parse_call_block();
  Statement parse_filter_block();
  Statement parse_with();
  Statement parse_generation();
  Statement parse_block();
  Statement parse_autoescape();
  Statement parse_needs_loader(const std::string& tag);
  void parse_signature(MacroDefinition& definition);
  Body parse_macro_body(MacroDefinition& definition, std::string_view end_tag);
  Target parse_target(bool with_namespace, std::string_view stop_word);
  Target parse_single_target(bool with_namespace);

  // Expressions: parser_expression.cc, loosest binding first.
  ExpressionPtr parse_expression();
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_parenthesized();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_tuple(bool with_conditional, std::string_view stop_word = {});
  ExpressionPtr parse_postfix(ExpressionPtr object);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr input);
  ExpressionPtr parse_attribute(ExpressionPtr object);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_slice_or_index(ExpressionPtr object);
  ExpressionPtr parse_call(ExpressionPtr callee);
  CallArguments parse_arguments();
  ExpressionPtr parse_filter(ExpressionPtr input);
  ExpressionPtr parse_filter_chain(ExpressionPtr input, bool first_has_pipe);
  ExpressionPtr parse_test(ExpressionPtr input);
  std::string parse_dotted_name();
  bool at_test_argument() const;
  bool at_tuple_end(std::string_view stop_word) const;

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool at_name(std::string_view name) const;
  bool at_operator(std::string_view op) const;
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view op);
  void expect_name(std::string_view name);
  void expect_operator(std::string_view op);
  void expect_block_end();
  std::string expect_identifier(std::string_view what);
  [[noreturn]] void fail(const std::string& message) const;

  template <typename Node>
  ExpressionPtr make(Node node, int line) {
    return finish({std::move(node), line});
  }
  /// Sets the height and checks it.
  ExpressionPtr finish(Expression expression) const;

  // Counts how deep the source is nested.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxTreeHeight) parser_.fail("nested too deep");
    }
    ~Nesting() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  std::vector<MacroDefinition*> open_macros_;  // those around the current token
  std::set<std::string> block_names_;
  int open_loops_ = 0;  // `for` bodies around it, within the innermost macro
};

}  // namespace lmdeploy::jinja
