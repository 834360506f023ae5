// Expressions of the template language.
#include <algorithm>
#include <iterator>
#include <optional>

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/parser.h"

namespace lmdeploy::jinja {
namespace {

constexpr std::pair<std::string_view, BinaryOp> kSumOperators[] = {{"+", BinaryOp::kAdd},
                                                                   {"-", BinaryOp::kSubtract}};
constexpr std::pair<std::string_view, BinaryOp> kProductOperators[] = {{"*", BinaryOp::kMultiply},
                                                                       {"/", BinaryOp::kDivide},
                                                                       {"//", BinaryOp::kFloorDivide},
                                                                       {"%", BinaryOp::kModulo}};
constexpr std::pair<std::string_view, CompareOp> kCompareOperators[] = {
    {"==", CompareOp::kEqual},     {"!=", CompareOp::kNotEqual}, {"<", CompareOp::kLess},
    {"<=", CompareOp::kLessEqual}, {">", CompareOp::kGreater},   {">=", CompareOp::kGreaterEqual}};

// `is` takes one argument without parentheses, unless one of these words follows.
constexpr std::string_view kNoTestArgument[] = {"else", "or", "and"};

template <typename Op, size_t kCount>
std::optional<Op> find_operator(const Token& token, const std::pair<std::string_view, Op> (&rows)[kCount]) {
  if (token.kind != TokenKind::kOperator) return std::nullopt;
  for (const auto& [text, op] : rows)
    if (token.text == text) return op;
  return std::nullopt;
}

}  // namespace

ExpressionPtr Parser::finish(Expression expression) const {
  int tallest = 0;
  for_each_child(expression, [&](const Expression& child) { tallest = std::max(tallest, child.height); });
  expression.height = 1 + tallest;
  if (expression.height > kMaxTreeHeight) fail(cat("an expression of more than ", kMaxTreeHeight, " levels"));
  return std::make_unique<Expression>(std::move(expression));
}

ExpressionPtr Parser::parse_expression() {
  const Nesting nesting(*this);
  return parse_conditional();
}

ExpressionPtr Parser::parse_conditional() {
  ExpressionPtr value = parse_or();
  while (at_name("if")) {
    const int line = next().line;
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
    value = make(Conditional{std::move(condition), std::move(value), std::move(otherwise)}, line);
  }
  return value;
}

ExpressionPtr Parser::parse_or() {
  ExpressionPtr left = parse_and();
  while (at_name("or")) {
    const int line = next().line;
    ExpressionPtr right = parse_and();
    left = make(Logical{/*is_and=*/false, std::move(left), std::move(right)}, line);
  }
  return left;
}

ExpressionPtr Parser::parse_and() {
  ExpressionPtr left = parse_not();
  while (at_name("and")) {
    const int line = next().line;
    ExpressionPtr right = parse_not();
    left = make(Logical{/*is_and=*/true, std::move(left), std::move(right)}, line);
  }
  return left;
}

ExpressionPtr Parser::parse_not() {
  const Nesting nesting(*this);
  if (!at_name("not")) return parse_comparison();
  const int line = next().line;
  return make(Unary{UnaryOp::kNot, parse_not()}, line);
}

ExpressionPtr Parser::parse_comparison() {
  const int line = current().line;
  Comparison node{parse_sum(), {}};
  while (true) {
    if (const auto op = find_operator(current(), kCompareOperators)) {
      next();
      node.rest.emplace_back(*op, parse_sum());
    } else if (skip_name("in")) {
      node.rest.emplace_back(CompareOp::kIn, parse_sum());
    } else if (at_name("not") && tokens_[at_ + 1].kind == TokenKind::kName && tokens_[at_ + 1].text == "in") {
      next();
      next();
      node.rest.emplace_back(CompareOp::kNotIn, parse_sum());
    } else {
      break;
    }
  }
  return node.rest.empty() ? std::move(node.first) : make(std::move(node), line);
}

ExpressionPtr Parser::parse_sum() {
  ExpressionPtr left = parse_concatenation();
  while (const auto op = find_operator(current(), kSumOperators)) {
    const int line = next().line;
    ExpressionPtr right = parse_concatenation();
    left = make(Binary{*op, std::move(left), std::move(right)}, line);
  }
  return left;
}

ExpressionPtr Parser::parse_concatenation() {
  const int line = current().line;
  Concatenation node;
  node.parts.push_back(parse_product());
  while (skip_operator("~")) node.parts.push_back(parse_product());
  return node.parts.size() == 1 ? std::move(node.parts[0]) : make(std::move(node), line);
}

ExpressionPtr Parser::parse_product() {
  ExpressionPtr left = parse_power();
  while (const auto op = find_operator(current(), kProductOperators)) {
    const int line = next().line;
    ExpressionPtr right = parse_power();
    left = make(Binary{*op, std::move(left), std::move(right)}, line);
  }
  return left;
}

ExpressionPtr Parser::parse_power() {
  ExpressionPtr left = parse_unary(/*with_filters=*/true);
  while (at_operator("**")) {
    const int line = next().line;
    ExpressionPtr right = parse_unary(/*with_filters=*/true);
    left = make(Binary{BinaryOp::kPower, std::move(left), std::move(right)}, line);
  }
  return left;
}

ExpressionPtr Parser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  const int line = current().line;
  ExpressionPtr value;
  if (skip_operator("-"))
    value = make(Unary{UnaryOp::kMinus, parse_unary(/*with_filters=*/false)}, line);
  else if (skip_operator("+"))
    value = make(Unary{UnaryOp::kPlus, parse_unary(/*with_filters=*/false)}, line);
  else
    value = parse_primary();
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr Parser::parse_primary() {
  const Token& token = current();
  if (token.kind == TokenKind::kName) return parse_name();
  if (token.kind == TokenKind::kLiteral) {
    next();
    std::string joined;  // adjacent strings are one
    if (!token.literal.is_text() || current().kind != TokenKind::kLiteral || !current().literal.is_text())
      return make(Literal{token.literal}, token.line);
    for (joined = token.literal.utf8(); current().kind == TokenKind::kLiteral && current().literal.is_text();
         next())
      joined += current().literal.utf8();
    return make(Literal{Value(std::move(joined))}, token.line);
  }
  if (at_operator("(")) return parse_parenthesized();
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  fail("expected an expression");
}

ExpressionPtr Parser::parse_name() {
  const Token& token = next();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return make(Literal{Value(true)}, token.line);
  if (name == "false" || name == "False") return make(Literal{Value(false)}, token.line);
  if (name == "none" || name == "None") return make(Literal{Value()}, token.line);
  for (MacroDefinition* macro : open_macros_) {
    macro->uses_caller |= name == "caller";
    macro->uses_kwargs |= name == "kwargs";
    macro->uses_varargs |= name == "varargs";
  }
  return make(Name{name}, token.line);
}

ExpressionPtr Parser::parse_parenthesized() {
  const int line = next().line;
  if (skip_operator(")")) return make(ListDisplay{{}, /*is_tuple=*/true}, line);
  ExpressionPtr value = parse_tuple(/*with_conditional=*/true);
  expect_operator(")");
  return value;
}

ExpressionPtr Parser::parse_list() {
  const int line = next().line;
  ListDisplay node{{}, /*is_tuple=*/false};
  while (!at_operator("]")) {
    if (!node.items.empty()) expect_operator(",");
    if (at_operator("]")) break;
    node.items.push_back(parse_expression());
  }
  expect_operator("]");
  return make(std::move(node), line);
}

ExpressionPtr Parser::parse_dict() {
  const int line = next().line;
  DictDisplay node;
  while (!at_operator("}")) {
    if (!node.entries.empty()) expect_operator(",");
    if (at_operator("}")) break;
    ExpressionPtr key = parse_expression();
    expect_operator(":");
    node.entries.emplace_back(std::move(key), parse_expression());
  }
  expect_operator("}");
  return make(std::move(node), line);
}

bool Parser::at_tuple_end(std::string_view stop_word) const {
  const TokenKind kind = current().kind;
  return kind == TokenKind::kVariableEnd || kind == TokenKind::kBlockEnd || at_operator(")") ||
         (!stop_word.empty() && at_name(stop_word));
}

// `a` is itself; `a,` and `a, b` are tuples.
ExpressionPtr Parser::parse_tuple(bool with_conditional, std::string_view stop_word) {
  const int line = current().line;
  ListDisplay node{{}, /*is_tuple=*/true};
  bool is_tuple = false;
  do {
    if (at_tuple_end(stop_word)) break;
    node.items.push_back(with_conditional ? parse_expression() : parse_or());
    is_tuple |= at_operator(",");
  } while (skip_operator(","));
  if (node.items.empty()) fail("expected an expression");
  return is_tuple ? make(std::move(node), line) : std::move(node.items[0]);
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr object) {
  while (true) {
    if (at_operator("."))
      object = parse_attribute(std::move(object));
    else if (at_operator("["))
      object = parse_subscript(std::move(object));
    else if (at_operator("("))
      object = parse_call(std::move(object));
    else
      return object;
  }
}

ExpressionPtr Parser::parse_filters_and_tests(ExpressionPtr input) {
  while (true) {
    if (at_operator("|"))
      input = parse_filter_chain(std::move(input), /*first_has_pipe=*/true);
    else if (at_name("is"))
      input = parse_test(std::move(input));
    else if (at_operator("("))  // calls are allowed after a filter: x|f(1)(2)
      input = parse_call(std::move(input));
    else
      return input;
  }
}

ExpressionPtr Parser::parse_attribute(ExpressionPtr object) {
  const int line = next().line;
  const Token& token = current();
  if (token.kind == TokenKind::kName) {
    next();
    return make(AttributeAccess{std::move(object), token.text}, line);
  }
  if (token.kind != TokenKind::kLiteral || !token.literal.is_int())
    fail("expected a name or a number after '.'");
  next();
  return make(Subscript{std::move(object), make(Literal{token.literal}, line)}, line);
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr object) {
  next();
  ExpressionPtr value = parse_slice_or_index(std::move(object));
  expect_operator("]");
  return value;
}

ExpressionPtr Parser::parse_slice_or_index(ExpressionPtr object) {
  const int line = current().line;
  SliceAccess slice{std::move(object), nullptr, nullptr, nullptr};
  if (!at_operator(":")) {
    ExpressionPtr index = parse_tuple(/*with_conditional=*/true);
    if (!at_operator(":")) return make(Subscript{std::move(slice.object), std::move(index)}, line);
    slice.start = std::move(index);
  }
  expect_operator(":");
  if (!at_operator(":") && !at_operator("]")) slice.stop = parse_expression();
  if (skip_operator(":") && !at_operator("]")) slice.step = parse_expression();
  return make(std::move(slice), line);
}

ExpressionPtr Parser::parse_call(ExpressionPtr callee) {
  const int line = current().line;
  return make(Call{std::move(callee), parse_arguments()}, line);
}

CallArguments Parser::parse_arguments() {
  expect_operator("(");
  CallArguments arguments;
  for (bool first = true; !at_operator(")"); first = false) {
    if (!first) expect_operator(",");
    if (at_operator(")")) break;
    const bool names_begun = !arguments.named.empty() || arguments.star_star;
    if (skip_operator("**")) {
      arguments.star_star = parse_expression();
    } else if (skip_operator("*")) {
      if (arguments.star || arguments.star_star) fail("invalid syntax for function call expression");
      arguments.star = parse_expression();
    } else if (current().kind == TokenKind::kName && tokens_[at_ + 1].kind == TokenKind::kOperator &&
               tokens_[at_ + 1].text == "=") {
      std::string name = next().text;
      next();
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (names_begun || arguments.star) fail("a positional argument after a named one");
      arguments.positional.push_back(parse_expression());
    }
  }
  expect_operator(")");
  return arguments;
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_identifier("a name");
  while (skip_operator(".")) name += "." + expect_identifier("a name");
  return name;
}

ExpressionPtr Parser::parse_filter_chain(ExpressionPtr input, bool first_has_pipe) {
  if (!first_has_pipe) input = parse_filter(std::move(input));
  while (skip_operator("|")) input = parse_filter(std::move(input));
  return input;
}

ExpressionPtr Parser::parse_filter(ExpressionPtr input) {
  const int line = current().line;
  Filter node{std::move(input), parse_dotted_name(), {}};
  if (at_operator("(")) node.arguments = parse_arguments();
  return make(std::move(node), line);
}

bool Parser::at_test_argument() const {
  const Token& token = current();
  if (token.kind == TokenKind::kLiteral || at_operator("(") || at_operator("[") || at_operator("{"))
    return true;
  return token.kind == TokenKind::kName && std::find(std::begin(kNoTestArgument), std::end(kNoTestArgument),
                                                     token.text) == std::end(kNoTestArgument);
}

ExpressionPtr Parser::parse_test(ExpressionPtr input) {
  const int line = next().line;
  const bool negated = skip_name("not");
  Test node{std::move(input), parse_dotted_name(), {}};
  if (at_operator("(")) {
    node.arguments = parse_arguments();
  } else if (at_test_argument()) {
    if (at_name("is")) fail("tests cannot be chained with 'is'");
    node.arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  ExpressionPtr test = make(std::move(node), line);
  return negated ? make(Unary{UnaryOp::kNot, std::move(test)}, line) : std::move(test);
}

}  // namespace lmdeploy::jinja
