// PCRE2: compiling, matching without limits, characters newer than its tables.
#include "lmdeploy/text/unicode/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <limits>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/unicode/unicode_additions.h"

namespace lmdeploy {
namespace {

template <auto kFree>
struct Deleter {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Deleter<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;

std::string pcre2_message(int code) {
  char text[256] = "";
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof(text));
  return text;
}

// What a thread needs to match any expression: room for the whole match's borders, and limits that no text
// reaches (they would turn a long text into an error).
struct MatchState {
  MatchData data{pcre2_match_data_create(1, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};

  MatchState() {
    if (data == nullptr || context == nullptr)
      throw Error(ErrorCode::kResourceExhausted, "out of memory for matching a regular expression");
    constexpr uint32_t kNoLimit = std::numeric_limits<uint32_t>::max();
    pcre2_set_match_limit(context.get(), kNoLimit);
    pcre2_set_depth_limit(context.get(), kNoLimit);
    pcre2_set_heap_limit(context.get(), kNoLimit);
  }
};

MatchState& match_state() {
  thread_local MatchState state;
  return state;
}

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>> compiled;
  bool jit = false;
};

Regex::Regex(const std::string& pattern) : code_(std::make_unique<Code>()) {
  const std::string translated = translate_regex(pattern);
  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                      &error, &offset, context.get()));
  if (code_->compiled == nullptr)
    throw Error(ErrorCode::kInvalidData, cat("regular expression \"", pattern, "\" (as PCRE2: \"", translated,
                                             "\") at offset ", offset, ": ", pcre2_message(error)));
  // Without JIT (a processor that PCRE2 has no compiler for) the interpreter gives the same matches.
  code_->jit = pcre2_jit_compile(code_->compiled.get(), PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

bool Regex::find(std::string_view text, size_t from, Span& match) const {
  MatchState& state = match_state();
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->jit)
    found = pcre2_jit_match(code_->compiled.get(), subject, text.size(), from, 0, state.data.get(),
                            state.context.get());
  if (found == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its state on the heap, which can grow
    found = pcre2_match(code_->compiled.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        state.data.get(), state.context.get());
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0)
    throw Error(ErrorCode::kResourceExhausted, cat("matching a regular expression in ", text.size(),
                                                   " bytes of text: ", pcre2_message(found)));
  const PCRE2_SIZE* borders = pcre2_get_ovector_pointer(state.data.get());
  match = {borders[0], borders[1]};
  return match.begin <= match.end;  // \K in a lookahead can turn them around
}

void Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
  if (!is_ascii(text) && holds_additions(text)) {
    const std::string known = with_older_twins(text);
    return find_known(known, matches);
  }
  find_known(text, matches);
}

void Regex::find_known(std::string_view text, std::vector<Span>& matches) const {
  size_t from = 0;
  size_t last_end = std::numeric_limits<size_t>::max();
  Span match;
  while (from <= text.size() && find(text, from, match)) {
    if (match.size() > 0 || match.end != last_end) {
      matches.push_back(match);
      last_end = match.end;
    }
    from = match.end;
    if (match.size() == 0) from += from < text.size() ? decode_utf8(text, from).size : 1;
  }
}

}  // namespace lmdeploy
