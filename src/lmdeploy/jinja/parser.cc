// Statements of the template language.
#include "lmdeploy/jinja/parser.h"

#include <algorithm>

#include "lmdeploy/core/error.h"

namespace lmdeploy::jinja {
namespace {

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kLiteral:
      return "a literal";
    default:
      return cat("'", token.text, "'");
  }
}

}  // namespace

Body Parser::parse() {
  Body body = parse_body({});
  return body;
}

bool Parser::at_name(std::string_view name) const {
  return current().kind == TokenKind::kName && current().text == name;
}
bool Parser::at_operator(std::string_view op) const {
  return current().kind == TokenKind::kOperator && current().text == op;
}
bool Parser::skip_name(std::string_view name) {
  const bool found = at_name(name);
  if (found) next();
  return found;
}
bool Parser::skip_operator(std::string_view op) {
  const bool found = at_operator(op);
  if (found) next();
  return found;
}
void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail(cat("expected '", name, "'"));
}
void Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail(cat("expected '", op, "'"));
}
void Parser::expect_block_end() {
  if (current().kind != TokenKind::kBlockEnd) fail("expected '%}'");
  next();
}
std::string Parser::expect_identifier(std::string_view what) {
  if (current().kind != TokenKind::kName) fail(cat("expected ", what));
  return next().text;
}
void Parser::fail(const std::string& message) const {
  throw SyntaxFailure(cat(message, ", found ", describe(current())), current().line);
}

// Statements up to "{% tag" with one of `end_tags`, whose name is left to read; to the end if there are none.
Body Parser::parse_body(std::initializer_list<std::string_view> end_tags) {
  const Nesting nesting(*this);
  Body body;
  while (true) {
    const Token& token = next();
    if (token.kind == TokenKind::kData) {
      body.push_back({Data{token.text}, token.line});
    } else if (token.kind == TokenKind::kVariableBegin) {
      body.push_back({Output{parse_tuple(/*with_conditional=*/true)}, token.line});
      if (current().kind != TokenKind::kVariableEnd) fail("expected '}}'");
      next();
    } else if (token.kind == TokenKind::kBlockBegin) {
      for (const std::string_view tag : end_tags)
        if (at_name(tag)) return body;
      body.push_back(parse_tag());
    } else {
      if (end_tags.size() != 0) fail(cat("expected a tag '", *(end_tags.end() - 1), "'"));
      return body;
    }
  }
}

// One statement, from the name of its tag on.
Statement Parser::parse_tag() {
  static constexpr std::pair<std::string_view, Statement (Parser::*)()> kTags[] = {
      {"if", &Parser::parse_if},           {"for", &Parser::parse_for},
      {"set", &Parser::parse_set},         {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block}, {"filter", &Parser::parse_filter_block},
      {"with", &Parser::parse_with},       {"autoescape", &Parser::parse_autoescape},
      {"block", &Parser::parse_block},     {"generation", &Parser::parse_generation}};
  const int line = current().line;
  const std::string tag = expect_identifier("the name of a tag");
  for (const auto& [name, parse] : kTags)
    if (tag == name) {
      Statement statement = (this->*parse)();
      statement.line = line;
      return statement;
    }
  if (tag == "extends" || tag == "include" || tag == "import" || tag == "from")
    return parse_needs_loader(tag);
  if (tag != "break" && tag != "continue") {
    --at_;
    fail("unknown tag");
  }
  if (open_loops_ == 0) fail(cat("'", tag, "' outside of a loop"));
  expect_block_end();
  return tag == "break" ? Statement{Break{}, line} : Statement{Continue{}, line};
}

Statement Parser::parse_if() {
  If node;
  do {
    ExpressionPtr condition = parse_tuple(/*with_conditional=*/false);
    expect_block_end();
    node.branches.emplace_back(std::move(condition), parse_body({"elif", "else", "endif"}));
  } while (skip_name("elif"));
  if (skip_name("else")) {
    expect_block_end();
    node.otherwise = parse_body({"endif"});
  }
  expect_name("endif");
  expect_block_end();
  return {std::move(node)};
}

Statement Parser::parse_for() {
  For node{};
  node.target = parse_target(/*with_namespace=*/false, "in");
  expect_name("in");
  node.iterable = parse_tuple(/*with_conditional=*/false, "recursive");
  if (skip_name("if")) node.filter = parse_expression();
  node.recursive = skip_name("recursive");
  expect_block_end();
  ++open_loops_;
  node.body = parse_body({"else", "endfor"});
  --open_loops_;
  if (skip_name("else")) {
    expect_block_end();
    node.otherwise = parse_body({"endfor"});
  }
  expect_name("endfor");
  expect_block_end();
  return {std::move(node)};
}

Target Parser::parse_single_target(bool with_namespace) {
  const Nesting nesting(*this);
  if (skip_operator("(")) {
    Target target = parse_target(with_namespace, {});
    expect_operator(")");
    return target;
  }
  Target target;
  target.name = expect_identifier("a name to assign to");
  static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
  if (std::find(std::begin(kConstants), std::end(kConstants), target.name) != std::end(kConstants))
    fail(cat("can't assign to '", target.name, "'"));
  if (with_namespace && skip_operator(".")) target.attribute = expect_identifier("an attribute");
  return target;
}

Target Parser::parse_target(bool with_namespace, std::string_view stop_word) {
  Target first = parse_single_target(with_namespace);
  if (!at_operator(",")) return first;
  Target tuple;
  tuple.is_tuple = true;
  tuple.parts.push_back(std::move(first));
  while (skip_operator(",")) {
    if (at_operator("=") || at_tuple_end(stop_word)) break;
    tuple.parts.push_back(parse_single_target(with_namespace));
  }
  return tuple;
}

Statement Parser::parse_set() {
  Target target = parse_target(/*with_namespace=*/true, {});
  if (skip_operator("=")) {
    ExpressionPtr value = parse_tuple(/*with_conditional=*/true);
    expect_block_end();
    return {Set{std::move(target), std::move(value)}};
  }
  SetBlock node{std::move(target), nullptr, {}};
  if (at_operator("|")) node.filter = parse_filter_chain(nullptr, /*first_has_pipe=*/true);
  expect_block_end();
  node.body = parse_body({"endset"});
  next();
  expect_block_end();
  return {std::move(node)};
}

void Parser::parse_signature(MacroDefinition& definition) {
  expect_operator("(");
  while (!at_operator(")")) {
    if (!definition.parameters.empty()) expect_operator(",");
    std::string name = expect_identifier("a parameter");
    ExpressionPtr default_value;
    if (skip_operator("="))
      default_value = parse_expression();
    else if (!definition.parameters.empty() && definition.parameters.back().second)
      fail("a parameter without a default follows one with a default");
    definition.parameters.emplace_back(std::move(name), std::move(default_value));
  }
  expect_operator(")");
}

Body Parser::parse_macro_body(MacroDefinition& definition, std::string_view end_tag) {
  expect_block_end();
  open_macros_.push_back(&definition);
  const int loops_around = std::exchange(open_loops_, 0);
  Body body = parse_body({end_tag});
  open_loops_ = loops_around;
  open_macros_.pop_back();
  next();
  expect_block_end();
  return body;
}

Statement Parser::parse_macro() {
  Macro node;
  node.definition.name = expect_identifier("the name of the macro");
  parse_signature(node.definition);
  node.definition.body = parse_macro_body(node.definition, "endmacro");
  return {std::move(node)};
}

Statement Parser::parse_call_block() {
  CallBlock node;
  node.caller.name = "caller";
  if (at_operator("(")) parse_signature(node.caller);
  node.call = parse_expression();
  if (!std::holds_alternative<Call>(node.call->node)) fail("expected a call");
  node.caller.body = parse_macro_body(node.caller, "endcall");
  return {std::move(node)};
}

Statement Parser::parse_filter_block() {
  FilterBlock node{parse_filter_chain(nullptr, /*first_has_pipe=*/false), {}};
  expect_block_end();
  node.body = parse_body({"endfilter"});
  next();
  expect_block_end();
  return {std::move(node)};
}

Statement Parser::parse_with() {
  With node;
  while (current().kind != TokenKind::kBlockEnd) {
    if (!node.bindings.empty()) expect_operator(",");
    Target target = parse_single_target(/*with_namespace=*/false);
    expect_operator("=");
    node.bindings.emplace_back(std::move(target), parse_expression());
  }
  expect_block_end();
  node.body = parse_body({"endwith"});
  next();
  expect_block_end();
  return {std::move(node)};
}

// The bodies of generation and block are functions in jinja2: no loop around them can be left from inside.
Statement Parser::parse_generation() {
  expect_block_end();
  const int loops_around = std::exchange(open_loops_, 0);
  Scoped node{parse_body({"endgeneration"})};
  open_loops_ = loops_around;
  next();
  expect_block_end();
  return {std::move(node)};
}

Statement Parser::parse_block() {
  const std::string name = expect_identifier("the name of the block");
  if (!block_names_.insert(name).second) fail(cat("block '", name, "' defined twice"));
  bool scoped = false;
  while (at_name("scoped") || at_name("required")) scoped |= next().text == "scoped";
  expect_block_end();
  const int loops_around = std::exchange(open_loops_, 0);
  Scoped node{parse_body({"endblock"}), !scoped};
  open_loops_ = loops_around;
  next();
  skip_name(name);
  expect_block_end();
  return {std::move(node)};
}

// Chat templates are not HTML: escaping can only be switched off.
Statement Parser::parse_autoescape() {
  if (!at_name("false") && !at_name("False")) fail("only 'autoescape false' is supported");
  next();
  expect_block_end();
  Scoped node{parse_body({"endautoescape"})};
  next();
  expect_block_end();
  return {std::move(node)};
}

Statement Parser::parse_needs_loader(const std::string& tag) {
  while (current().kind != TokenKind::kBlockEnd && current().kind != TokenKind::kEnd) next();
  expect_block_end();
  return {NeedsLoader{tag}};
}

}  // namespace lmdeploy::jinja
