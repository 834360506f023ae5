// JSON schemas and regular expressions to grammars: one Error, or a grammar that never runs into a dead end.
// A text that is a JSON object is a schema; one in quotes (or any other) is an expression.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "json_mutation.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/grammar/compile.h"

namespace {

using namespace lmdeploy;

std::shared_ptr<const grammar::Vocabulary> vocabulary() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  for (const char* word : {"\", \"", "\":", "}, {", "aa", "10", "\xC3\xA9", "x\xC3", "\\u00", "  ", "\n  "})
    bytes.emplace_back(word);
  return std::make_shared<const grammar::Vocabulary>(std::move(bytes));
}

ResponseFormat format_of(const uint8_t* data, size_t size) {
  static fuzz::JsonInputs inputs;
  ResponseFormat format;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[0] != '{' && data[0] < 0x80) {
    format.kind = ResponseFormat::Kind::kRegex;
    format.pattern = text;
    return format;
  }
  format.kind = ResponseFormat::Kind::kJsonSchema;
  format.schema = inputs.take(data, size);
  format.strict = size % 5 == 0;
  return format;
}

// A few random tokens: all that the mask allows are accepted, and there is always one, or an end.
void walk(const grammar::CompiledGrammar& compiled, uint64_t seed) {
  Rng rng(seed);
  grammar::Matcher matcher = compiled.matcher();
  std::vector<uint32_t> mask(compiled.vocabulary().num_words());
  for (int step = 0; step < 24 && !matcher.is_complete(); ++step) {
    matcher.fill_mask(mask);
    std::vector<int> ids;
    for (int id = 0; id < static_cast<int>(compiled.vocabulary().size()); ++id)
      if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
    if (ids.empty()) {
      if (!matcher.can_stop()) std::abort();
      return;
    }
    if (!matcher.accept(ids[rng.below(ids.size())])) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokens = vocabulary();
  try {
    const auto compiled = grammar::compile(format_of(data, size), tokens, "input");
    walk(*compiled, size);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) std::abort();
  }
  return 0;
}
