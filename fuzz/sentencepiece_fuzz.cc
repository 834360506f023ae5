// Loads bytes as a SentencePiece model, in each way it can be used; what loads must encode and decode without
// a crash, streamed and whole alike.
#include <string_view>

#include "check_decoding.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/text/files/sentencepiece_tokenizer.h"

using namespace lmdeploy;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_log_level(LogLevel::kCritical);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const SentencePieceUse use :
       {SentencePieceUse::kFile, SentencePieceUse::kLegacyFolder, SentencePieceUse::kFolder}) {
    try {
      const ComposedTokenizer tokenizer(read_sentencepiece_tokenizer(bytes, "input", use));
      for (const std::string_view sample :
           {"", " a  b1", "<s>\xC3\xA9\xFF", "\xEF\xAC\x81 \xF0\x9F\xAB\xA8's\n"}) {
        std::vector<int> ids = tokenizer.encode(sample, {});
        for (size_t i = 0; i < size && i < 64; ++i) ids.push_back(data[i]);  // any order of pieces
        check_decoding(tokenizer, ids);
      }
    } catch (const Error&) {  // refused with a message, as it should be
    }
  }
  return 0;
}
