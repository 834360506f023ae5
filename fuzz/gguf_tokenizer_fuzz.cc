// Loads bytes as a GGUF file and reads its tokenizer; what loads must encode and decode without a
// crash, streamed and whole alike.
#include <sys/mman.h>
#include <unistd.h>

#include "check_decoding.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/text/files/gguf_tokenizer.h"

using namespace lmdeploy;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_log_level(LogLevel::kCritical);
  const int file = memfd_create("gguf", 0);
  const bool written = write(file, data, size) == static_cast<ssize_t>(size);
  try {
    if (written) {
      const ComposedTokenizer tokenizer(read_gguf_tokenizer(cat("/proc/self/fd/", file)));
      for (const std::string_view sample : {"", " a  b1", "<s>\xC3\xA9\xFF", "hell <|im_end|> one"})
        check_decoding(tokenizer, tokenizer.encode(sample, {}));
    }
  } catch (const Error&) {  // refused with a message, as it should be
  }
  close(file);
  return 0;
}
