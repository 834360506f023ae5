// Loads bytes as a tokenizer.json; what loads must encode and decode without a crash, streamed and whole
// alike.
#include <string_view>

#include "check_decoding.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/text/composed_tokenizer.h"
#include "lmdeploy/text/files/tokenizer_json.h"

using namespace lmdeploy;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_log_level(LogLevel::kCritical);
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const ComposedTokenizer tokenizer(read_tokenizer_json(parse_json(text, "input"), "input"));
    // Short texts: a regular expression may take exponential time, which is its file's own doing.
    for (const std::string_view sample : {"", " a  b1", "<s>\xC3\xA9\xFF", "\xF0\x9F\xAB\xA8's\n"})
      check_decoding(tokenizer, tokenizer.encode(sample, {}));
  } catch (const Error&) {  // refused with a message, as it should be
  }
  return 0;
}
