#include "lmdeploy/text/grammar/compile.h"

#include <algorithm>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/grammar/schema_rules.h"
#include "lmdeploy/text/grammar/work_limit.h"

namespace lmdeploy::grammar {
namespace {

using Kind = ResponseFormat::Kind;

// Everything that makes a difference, in one text.
std::string key_of(const ResponseFormat& format) {
  JsonArray key = {static_cast<int>(format.kind),
                   format.schema,
                   format.pattern,
                   format.prefix,
                   format.suffix,
                   format.separator,
                   format.strict,
                   format.compact};
  for (const std::string& choice : format.choices) key.emplace_back(choice);
  return to_json_text(key);
}

NodeId add_regex(GrammarBuilder& builder, std::string_view pattern, const std::string& where) {
  const NodeId start = builder.add();
  builder.dfa(start, regex_dfa(pattern, Anchoring::kWhole, where), Spelling::kPlain, builder.add_end(),
              /*sealed=*/true);
  return start;
}

NodeId add_choices(GrammarBuilder& builder, const std::vector<std::string>& choices, std::string_view where) {
  for (const std::string& choice : choices)
    if (!is_utf8(choice))
      throw Error(ErrorCode::kInvalidArgument, cat(where, ": found bytes that are no UTF-8"));
  const NodeId start = builder.add();
  builder.one_of(start, choices, builder.add_end());
  return start;
}

NodeId add_format(GrammarBuilder& builder, const ResponseFormat& format, const std::string& where,
                  SchemaNotes& notes) {
  static const Json kAnyObject = {{"type", "object"}};
  switch (format.kind) {
    case Kind::kJsonObject:
      return add_schema(builder, kAnyObject, {false, format.compact}, where, notes);
    case Kind::kJsonSchema: {
      const NodeId schema = add_schema(builder, format.schema, {format.strict, format.compact}, where, notes);
      if (format.prefix.empty() && format.suffix.empty() && format.separator.empty()) return schema;
      const NodeId start = builder.add();
      const NodeId end =
          builder.literal(builder.call(builder.literal(start, format.prefix), schema), format.suffix);
      builder.mark_end(end);
      if (!format.separator.empty()) builder.jump(builder.literal(end, format.separator), start);
      return start;
    }
    case Kind::kRegex:
      return add_regex(builder, format.pattern, where);
    case Kind::kChoice:
      return add_choices(builder, format.choices, where);
    case Kind::kText:
      break;
  }
  throw Error(ErrorCode::kInternal, "no grammar is needed for any text");
}

std::string place_of(const ResponseFormat& format, std::string_view where) {
  switch (format.kind) {
    case Kind::kJsonSchema:
      return cat(where, ".json_schema.schema");
    case Kind::kRegex:
      return cat(where, ".regex_schema");
    case Kind::kChoice:
      return cat(where, ".choice");
    default:
      return std::string(where);
  }
}

}  // namespace

std::shared_ptr<const CompiledGrammar> compile(const ResponseFormat& format,
                                               std::shared_ptr<const Vocabulary> vocabulary,
                                               std::string_view where) {
  const std::string place = place_of(format, where);
  constexpr uint64_t kMostSteps = 30'000'000;  // about two seconds
  const WorkLimit limit(place, kMostSteps);
  SchemaNotes notes;
  GrammarBuilder builder(place);
  NodeId start = add_format(builder, format, place, notes);
  if (vocabulary->drops_first_space()) {
    const NodeId text = start;
    start = builder.add();
    builder.byte(start, ' ', text);
    builder.jump(start, text);
  }
  Grammar grammar;
  if (!std::move(builder).finish(start, vocabulary->single_bytes(), grammar))
    throw Error(ErrorCode::kInvalidArgument,
                !notes.limit.empty() ? notes.limit
                                     : cat(place,
                                           ": found parts that contradict each other, so that no answer is "
                                           "possible; expected what some finite answer follows"));
  return std::make_shared<const CompiledGrammar>(std::move(grammar), std::move(vocabulary),
                                                 std::move(notes.warnings));
}

std::shared_ptr<const CompiledGrammar> GrammarCache::get(const ResponseFormat& format,
                                                         std::string_view where) {
  const std::string key = key_of(format);
  if (auto known = find(key)) return known;
  auto compiled = compile(format, vocabulary(), where);  // others may be using the cache meanwhile
  for (const std::string& warning : compiled->warnings()) LMD_LOG(kWarning, warning);
  const std::lock_guard lock(mutex_);
  entries_.emplace_front(key, compiled);
  if (entries_.size() > kMost) entries_.pop_back();
  return compiled;
}

std::shared_ptr<const CompiledGrammar> GrammarCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, key, &Entry::first);
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->second;
}

std::shared_ptr<const Vocabulary> GrammarCache::vocabulary() {
  const std::lock_guard lock(mutex_);
  if (tokenizer_ == nullptr)
    throw Error(ErrorCode::kUnsupported,
                "response_format needs a tokenizer, which the checkpoint does not have");
  if (vocabulary_ == nullptr) vocabulary_ = Vocabulary::of(*tokenizer_);
  return vocabulary_;
}

size_t GrammarCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace lmdeploy::grammar
