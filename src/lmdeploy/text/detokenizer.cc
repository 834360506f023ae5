// Detokenizer, and the decode stream of tokenizers that do not bring their own.
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/tokenizer.h"

namespace lmdeploy {
namespace {

// For tokenizers whose text is the tokens' bytes one after another.
class ByteStream : public DecodeStream {
 public:
  ByteStream(const Tokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  void push(int id, std::string& out) override {
    if (!tokenizer_.is_special(id)) {
      bytes_.push(tokenizer_.token_bytes(id), out);
    } else if (!skip_special_tokens_) {
      bytes_.push(tokenizer_.token_text(id), out);
    }
  }
  void finish(std::string& out) override { bytes_.finish(out); }

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  Utf8Assembler bytes_;
};

}  // namespace

std::unique_ptr<DecodeStream> Tokenizer::decode_stream(bool skip_special_tokens) const {
  return std::make_unique<ByteStream>(*this, skip_special_tokens);
}

std::vector<std::string> Tokenizer::decode_pieces(std::span<const int> ids, bool skip_special_tokens) const {
  const std::unique_ptr<DecodeStream> stream = decode_stream(skip_special_tokens);
  std::vector<std::string> pieces(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) stream->push(ids[i], pieces[i]);
  if (!pieces.empty()) stream->finish(pieces.back());
  return pieces;
}

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens)
    : tokenizer_(std::move(tokenizer)), stream_(tokenizer_->decode_stream(skip_special_tokens)) {}

std::string Detokenizer::push(std::span<const int> ids) {
  std::string out;
  for (const int id : ids) stream_->push(id, out);
  return out;
}

std::string Detokenizer::finish() {
  std::string out;
  stream_->finish(out);
  return out;
}

}  // namespace lmdeploy
