// Loads bytes as a rank file; what loads must give any text back.
#include <string_view>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/files/tiktoken.h"

using namespace lmdeploy;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_log_level(LogLevel::kCritical);
  static const TiktokenRules kRules = {.pattern = "\\s?\\w+|[^\\w\\s]+|\\s+",
                                       .special_tokens = {{"<|x|>", 100000}}};
  try {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const ComposedTokenizer tokenizer(read_tiktoken(bytes, kRules, "input"));
    for (const std::string_view sample : {"", " a  b1", "<|x|>\xC3\xA9\xFF", "\xF0\x9F\xAB\xA8's\n hello"}) {
      const std::vector<int> ids = tokenizer.encode(sample, {.parse_special = true});
      LMD_CHECK(tokenizer.decode(ids, false) == repair_utf8(sample), sample);
    }
  } catch (const Error&) {  // refused with a message, as it should be
  }
  return 0;
}
