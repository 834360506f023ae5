// Any bytes through a fixed byte-level tokenizer: encoding loses nothing, streamed decoding equals decoding
// at once, and a stop word is found wherever the pieces are cut.
#include <algorithm>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/composed_tokenizer.h"
#include "lmdeploy/text/files/tokenizer_json.h"
#include "lmdeploy/text/steps/byte_level.h"

using namespace lmdeploy;

namespace {

std::shared_ptr<const Tokenizer> make_tokenizer() {
  JsonObject vocab;
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    append_utf8(spelled, byte_level_char(static_cast<uint8_t>(byte)));
    vocab[spelled] = byte;
  }
  JsonArray merges;
  const auto merge = [&](const std::string& left, const std::string& right) {
    merges.push_back(JsonArray{Json(left), Json(right)});
    vocab[left + right] = static_cast<int64_t>(vocab.size());
  };
  merge("a", "a"), merge("aa", "aa"), merge("\u0120", "a"), merge("\u00C3", "\u00A9"), merge("b", "aa");
  const JsonObject byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  const JsonObject root = {{"pre_tokenizer", byte_level},
                           {"decoder", byte_level},
                           {"added_tokens", JsonArray{JsonObject{{"content", "<|x|>"}, {"special", true}}}},
                           {"model", JsonObject{{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
  return std::make_shared<ComposedTokenizer>(read_tokenizer_json(root, "fixed"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<const Tokenizer> kTokenizer = make_tokenizer();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<int> ids = kTokenizer->encode(text);
  const std::string decoded = kTokenizer->decode(ids, false);
  LMD_CHECK(decoded == repair_utf8(text), size);

  std::vector<int> any_ids;  // the bytes as ids: any order of token pieces, among them ids that do not exist
  for (size_t i = 0; i + 1 < size; i += 2) any_ids.push_back(data[i] + 2 * (data[i + 1] - 64));
  Detokenizer detokenizer(kTokenizer, size % 2 == 0);
  StopMatcher matcher({"aab", "ab", "\u00E9"});
  std::string streamed, before_stop;
  for (const int id : any_ids) {
    const std::string piece = detokenizer.push({&id, 1});
    LMD_CHECK(is_utf8(piece), id);
    streamed += piece;
    before_stop += matcher.push(piece);
  }
  const std::string rest = detokenizer.finish();
  before_stop += matcher.push(rest);
  before_stop += matcher.finish();
  streamed += rest;
  LMD_CHECK(streamed == kTokenizer->decode(any_ids, size % 2 == 0), streamed);
  const size_t stop = std::min({streamed.find("aab"), streamed.find("ab"), streamed.find("\u00E9")});
  LMD_CHECK(before_stop == streamed.substr(0, stop), streamed);
  return 0;
}
