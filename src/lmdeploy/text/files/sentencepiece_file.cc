// Reads ModelProto by hand: four messages of it matter. Field numbers: sentencepiece_model.proto of 0.1.97;
// wire format: protobuf.dev/programming-guides/encoding.
#include "lmdeploy/text/files/sentencepiece_file.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/model/vocabulary.h"

namespace lmdeploy {
namespace {

// The fields of one message, one after another.
class ProtoReader {
 public:
  ProtoReader(std::string_view bytes, const std::string& where) : rest_(bytes), where_(where) {}

  /// Goes to the next field; false at the end.
  bool next() {
    if (rest_.empty()) return false;
    const uint64_t key = varint();
    field_ = key >> 3;
    wire_type_ = static_cast<int>(key & 7);
    switch (wire_type_) {
      case kVarint:
        number_ = varint();
        return true;
      case kFixed64:
        bytes_ = take(8);
        return true;
      case kBytes:
        bytes_ = take(varint());
        return true;
      case kFixed32:
        bytes_ = take(4);
        return true;
      default:
        fail(cat("field ", field_, " has wire type ", wire_type_));
    }
  }
  uint64_t field() const { return field_; }
  std::string_view bytes() const { return expect(kBytes), bytes_; }
  bool boolean() const { return expect(kVarint), number_ != 0; }
  /// int32 and enums: negative values are written as 64 bits.
  int32_t integer() const { return expect(kVarint), static_cast<int32_t>(number_); }
  float number() const {
    expect(kFixed32);
    float value = 0;
    std::memcpy(&value, bytes_.data(), sizeof value);
    return value;
  }
  std::string text() const {
    if (!is_utf8(bytes())) fail(cat("field ", field_, " is not UTF-8"));
    return std::string(bytes_);
  }

 private:
  enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::kInvalidData, cat(where_, ": not a SentencePiece model: ", what));
  }
  void expect(WireType wanted) const {
    if (wire_type_ != wanted)
      fail(cat("field ", field_, " has wire type ", wire_type_, ", expected ", static_cast<int>(wanted)));
  }
  std::string_view take(uint64_t size) {
    if (size > rest_.size())
      fail(cat("field ", field_, " says ", size, " bytes, but ", rest_.size(), " are left"));
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    fail("a number has more than ten bytes");
  }

  std::string_view rest_;
  const std::string& where_;
  uint64_t field_ = 0, number_ = 0;
  int wire_type_ = 0;
  std::string_view bytes_;
};

SentencePiece read_piece(std::string_view bytes, const std::string& where) {
  SentencePiece piece;
  for (ProtoReader reader(bytes, where); reader.next();) {
    if (reader.field() == 1) piece.text = reader.text();
    if (reader.field() == 2) piece.score = reader.number();
    if (reader.field() == 3) piece.type = static_cast<SentencePiece::Type>(reader.integer());
  }
  return piece;
}

void read_trainer_spec(std::string_view bytes, const std::string& where, SentencePieceFile& file) {
  for (ProtoReader reader(bytes, where); reader.next();) {
    if (reader.field() == 3) file.model = static_cast<SentencePieceFile::Model>(reader.integer());
    if (reader.field() == 24) file.whitespace_as_suffix = reader.boolean();
    if (reader.field() == 41) file.bos_id = reader.integer();
    if (reader.field() == 42) file.eos_id = reader.integer();
    if (reader.field() == 44) file.unk_surface = reader.text();
  }
}

void read_normalizer_spec(std::string_view bytes, const std::string& where, SentencePieceFile& file) {
  for (ProtoReader reader(bytes, where); reader.next();) {
    if (reader.field() == 2) file.charsmap = reader.bytes();
    if (reader.field() == 3) file.add_dummy_prefix = reader.boolean();
    if (reader.field() == 4) file.remove_extra_whitespaces = reader.boolean();
    if (reader.field() == 5) file.escape_whitespaces = reader.boolean();
  }
}

// Text that decoding would have to go through once more. No published model has one.
void refuse_denormalizer(std::string_view bytes, const std::string& where) {
  for (ProtoReader reader(bytes, where); reader.next();)
    if (reader.field() == 2 && !reader.bytes().empty())
      throw Error(ErrorCode::kUnsupported,
                  cat(where, ": denormalizer_spec with a character map is not supported"));
}

// Checks what the format promises, and finds the special pieces.
class Checker {
 public:
  Checker(SentencePieceFile& file, const std::string& where) : file_(file), where_(where) {}

  void run() {
    if (file_.pieces.empty() || file_.pieces.size() >= static_cast<size_t>(Vocabulary::kMaxId))
      fail(cat("found ", file_.pieces.size(), " pieces, expected 1 to ", Vocabulary::kMaxId - 1));
    if (file_.model < SentencePieceFile::Model::kUnigram || file_.model > SentencePieceFile::Model::kChar)
      fail(cat("model_type is ", static_cast<int>(file_.model), ", expected 1 to 4"));
    std::optional<int> unk_id;
    for (size_t id = 0; id < file_.pieces.size(); ++id) {
      check_piece(id);
      if (file_.pieces[id].type != SentencePiece::Type::kUnknown) continue;
      if (unk_id) fail(cat("pieces ", *unk_id, " and ", id, " are both of type UNKNOWN"));
      unk_id = static_cast<int>(id);
    }
    if (!unk_id) fail("no piece is of type UNKNOWN");
    file_.unk_id = *unk_id;
    if (!is_control(file_.bos_id)) file_.bos_id = -1;
    if (!is_control(file_.eos_id)) file_.eos_id = -1;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::kInvalidData, cat(where_, ": ", what));
  }
  void check_piece(size_t id) {
    const SentencePiece& piece = file_.pieces[id];
    if (piece.text.empty()) fail(cat("piece ", id, " is empty"));
    if (!texts_.insert(piece.text).second) fail(cat("piece ", id, ", \"", piece.text, "\", is there twice"));
    if (!std::isfinite(piece.score)) fail(cat("the score of piece ", id, " is not finite"));
    if (piece.type < SentencePiece::Type::kNormal || piece.type > SentencePiece::Type::kByte)
      fail(cat("piece ", id, " has type ", static_cast<int>(piece.type), ", expected 1 to 6"));
    // SentencePiece merges them and takes the result apart again.
    if (piece.type == SentencePiece::Type::kUnused && file_.model == SentencePieceFile::Model::kBpe)
      throw Error(
          ErrorCode::kUnsupported,
          cat(where_, ": piece ", id, ", \"", piece.text,
              "\", is UNUSED, which is not supported in a BPE model; use the model's tokenizer.json"));
  }
  bool is_control(int id) const {
    return id >= 0 && static_cast<size_t>(id) < file_.pieces.size() &&
           file_.pieces[static_cast<size_t>(id)].type == SentencePiece::Type::kControl;
  }

  SentencePieceFile& file_;
  const std::string& where_;
  std::unordered_set<std::string_view> texts_;
};

}  // namespace

SentencePieceFile read_sentencepiece_file(std::string_view bytes, const std::string& where) {
  SentencePieceFile file;
  for (ProtoReader reader(bytes, where); reader.next();) {
    if (reader.field() == 1) file.pieces.push_back(read_piece(reader.bytes(), where));
    if (reader.field() == 2) read_trainer_spec(reader.bytes(), where, file);
    if (reader.field() == 3) read_normalizer_spec(reader.bytes(), where, file);
    if (reader.field() == 5) refuse_denormalizer(reader.bytes(), where);
  }
  Checker(file, where).run();
  return file;
}

}  // namespace lmdeploy
