#include "lmdeploy/jinja/template.h"

#include <algorithm>
#include <optional>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/jinja/check_names.h"
#include "lmdeploy/jinja/interpreter.h"
#include "lmdeploy/jinja/parser.h"

namespace lmdeploy::jinja {
namespace {

constexpr size_t kMaxSourceBytes = size_t{4} << 20;

std::vector<std::string> text_literals(const std::vector<Token>& tokens) {
  std::vector<std::string> literals;
  for (const Token& token : tokens)
    if (token.kind == TokenKind::kLiteral && token.literal.is_text())
      literals.push_back(token.literal.utf8());
  std::sort(literals.begin(), literals.end());
  return literals;
}

std::vector<std::string> names_of(const std::vector<Token>& tokens) {
  std::vector<std::string> names;
  for (const Token& token : tokens)
    if (token.kind == TokenKind::kName) names.push_back(token.text);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

DictPtr to_dict(const JsonObject& variables) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [name, value] : variables) dict->set(Value(std::string(name)), from_json(value));
  return dict;
}

}  // namespace

struct Template::Tree {
  Body body;
  std::vector<std::string> literals, names;  // sorted
};

LocalTime system_clock() {
  std::timespec now{};
  std::timespec_get(&now, TIME_UTC);
  LocalTime local;
  localtime_r(&now.tv_sec, &local.date);
  local.microsecond = static_cast<int>(now.tv_nsec / 1000);
  return local;
}

Template::Template(const std::string& source) {
  if (source.size() > kMaxSourceBytes)
    throw Error(ErrorCode::kInvalidData,
                cat("chat template: ", source.size(), " bytes, at most ", kMaxSourceBytes));
  try {
    std::vector<Token> tokens = tokenize(repair_utf8(source));
    auto tree = std::make_unique<Tree>();
    tree->literals = text_literals(tokens);
    tree->names = names_of(tokens);
    tree->body = Parser(std::move(tokens)).parse();
    check_names(tree->body);
    tree_ = std::move(tree);
  } catch (const SyntaxFailure& failure) {
    throw Error(ErrorCode::kInvalidData, cat("chat template, line ", failure.line(), ": ", failure.what()));
  }
}

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;

bool Template::try_render(const JsonObject& variables, std::string& out, const Clock& clock) const {
  DictPtr dict;
  std::optional<Interpreter> interpreter;  // outlives the failure, whose line it knows
  try {
    dict = to_dict(variables);
    interpreter.emplace(dict, clock);
    out = interpreter->render(tree_->body);
    return true;
  } catch (const Failure& failure) {
    out = interpreter ? cat("chat template, line ", interpreter->line(), ": ", failure.what())
                      : cat("chat template variables: ", failure.what());
    return false;
  }
}

std::string Template::render(const JsonObject& variables, const Clock& clock) const {
  std::string out;
  if (!try_render(variables, out, clock)) throw Error(ErrorCode::kInvalidArgument, out);
  return out;
}

bool Template::has_name(std::string_view name) const {
  return std::binary_search(tree_->names.begin(), tree_->names.end(), name);
}

bool Template::has_literal(std::string_view text) const {
  return std::binary_search(tree_->literals.begin(), tree_->literals.end(), text);
}

}  // namespace lmdeploy::jinja
