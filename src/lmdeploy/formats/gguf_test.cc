// GGUF: equal bytes with the reference implementation, and every kind of damaged file.
#include "lmdeploy/formats/gguf.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "lmdeploy/formats/test_support.h"

namespace lmdeploy {
namespace {

using Strings = std::vector<std::string_view>;

struct GoldenTensor {
  std::string name;
  DType dtype;
  Shape shape;
};
// As in make_golden.py.
const std::vector<GoldenTensor>& golden_tensors() {
  static const std::vector<GoldenTensor> tensors = {{"token_embd.weight", DType::kF32, {4, 32}},
                                                    {"blk.0.attn_q.weight", DType::kQ4_0, {2, 64}},
                                                    {"blk.0.attn_k.weight", DType::kQ4_1, {3, 32}},
                                                    {"blk.0.attn_v.weight", DType::kQ5_0, {1, 32}},
                                                    {"blk.0.attn_output.weight", DType::kQ5_1, {2, 32}},
                                                    {"blk.0.ffn_gate.weight", DType::kQ8_0, {3, 64}},
                                                    {"blk.0.ffn_up.weight", DType::kQ4_K, {2, 256}},
                                                    {"blk.0.ffn_down.weight", DType::kQ5_K, {1, 512}},
                                                    {"blk.0.ffn_norm.weight", DType::kQ6_K, {1, 256}},
                                                    {"output.weight", DType::kBF16, {5, 3}},
                                                    {"output_norm.weight", DType::kF16, {32}},
                                                    {"own.f64", DType::kF64, {2}},
                                                    {"own.i64", DType::kI64, {2, 1, 2, 1}},
                                                    {"own.i32", DType::kI32, {3}},
                                                    {"own.i16", DType::kI16, {3}},
                                                    {"own.i8", DType::kI8, {3}}};
  return tensors;
}

std::vector<GgufItem> golden_metadata() {
  return {{"general.architecture", GgufType::kString, "llama"},
          {"test.u8", GgufType::kU8, int64_t{200}},
          {"test.i8", GgufType::kI8, int64_t{-100}},
          {"test.u16", GgufType::kU16, int64_t{60000}},
          {"test.i16", GgufType::kI16, int64_t{-30000}},
          {"test.u32", GgufType::kU32, int64_t{4000000000}},
          {"test.i32", GgufType::kI32, int64_t{-2000000000}},
          {"test.f32", GgufType::kF32, 0.5},
          {"test.bool", GgufType::kBool, true},
          {"test.string", GgufType::kString, std::string_view("w\xc3\xb6rld")},
          {"test.u64", GgufType::kU64, (uint64_t{1} << 63) + 1},
          {"test.i64", GgufType::kI64, -(int64_t{1} << 62)},
          {"test.f64", GgufType::kF64, 0.1},
          {"test.strings", GgufType::kString, Strings{"a", "", "bc"}},
          {"test.ints", GgufType::kI32, std::vector<int64_t>{1, -2, 3}},
          {"test.floats", GgufType::kF32, std::vector<double>{0.5, -0.25}},
          {"test.bools", GgufType::kBool, std::vector<bool>{true, false, true}}};
}

TEST(Gguf, ReadsWhatTheReferenceWrote) {
  const GgufFile file(golden_path("golden.gguf"));
  const std::vector<GgufItem> want = golden_metadata();
  ASSERT_EQ(file.metadata().size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(file.metadata()[i].first, want[i].key);
    EXPECT_EQ(file.metadata()[i].second, want[i].value) << want[i].key;
  }
  ASSERT_EQ(file.tensors().size(), golden_tensors().size());
  for (size_t i = 0; i < golden_tensors().size(); ++i) {
    const GgufTensor& got = file.tensors()[i];
    const GoldenTensor& golden = golden_tensors()[i];
    EXPECT_EQ(got.name, golden.name);
    EXPECT_EQ(got.dtype, golden.dtype) << golden.name;
    EXPECT_EQ(got.shape, golden.shape) << golden.name;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(got.data), got.bytes),
              bytes_of(golden_tensor(golden.dtype, golden.shape, static_cast<int>(i))))
        << golden.name;
  }
}

TEST(Gguf, WritesTheSameBytesAsTheReference) {
  TempFolder folder;
  std::vector<Tensor> tensors;
  std::vector<GgufNamedTensor> named;
  for (size_t i = 0; i < golden_tensors().size(); ++i) {
    const GoldenTensor& golden = golden_tensors()[i];
    tensors.push_back(golden_tensor(golden.dtype, golden.shape, static_cast<int>(i)));
    named.push_back({golden.name, tensors.back()});
  }
  write_gguf(folder.file("out.gguf"), golden_metadata(), named);
  EXPECT_EQ(read_file(folder.file("out.gguf")), read_file(golden_path("golden.gguf")));
}

TEST(Gguf, TypedGetters) {
  const GgufFile file(golden_path("golden.gguf"));
  EXPECT_EQ(file.get_int("test.u8", 0), 200);
  EXPECT_EQ(file.get_int("absent", -7), -7);
  EXPECT_EQ(file.get_double("test.f64", 0), 0.1);
  EXPECT_EQ(file.get_double("test.i8", 0), -100.0);
  EXPECT_EQ(file.get_double("absent", 2.5), 2.5);
  EXPECT_EQ(file.get_bool("test.bool", false), true);
  EXPECT_EQ(file.get_bool("absent", true), true);
  EXPECT_EQ(file.get_string("general.architecture"), "llama");
  EXPECT_EQ(file.get_string("absent", "none"), "none");
  EXPECT_CONTAINS(error_of(ErrorCode::kInvalidData, [&] { file.get_int("test.f32", 0); }),
                  "key \"test.f32\" is a number, expected an integer");
  EXPECT_CONTAINS(error_of(ErrorCode::kInvalidData, [&] { file.get_int("test.u64", 0); }), "above 2^63 - 1");
  EXPECT_CONTAINS(error_of(ErrorCode::kInvalidData, [&] { file.get_string("test.ints"); }),
                  "an array of integers");
  EXPECT_CONTAINS(error_of(ErrorCode::kInvalidData, [&] { file.get_bool("test.u8", false); }),
                  "expected a bool");
  EXPECT_CONTAINS(error_of(ErrorCode::kInvalidData, [&] { file.get_double("test.string", 0); }),
                  "golden.gguf");
}

TEST(Gguf, KeepsAlignmentFromTheKey) {
  TempFolder folder;
  const Tensor small = golden_tensor(DType::kI8, {3}, 0), other = golden_tensor(DType::kF32, {2}, 1);
  for (const int64_t alignment : {8, 64, 4096}) {
    const std::string path = folder.file(cat("a", alignment, ".gguf"));
    write_gguf(path, std::vector<GgufItem>{{"general.alignment", GgufType::kU32, alignment}},
               std::vector<GgufNamedTensor>{{"small", small}, {"other", other}});
    const GgufFile file(path);
    const auto* start = file.file().bytes().data();
    EXPECT_EQ((file.tensors()[1].data - start) % alignment, 0);
    EXPECT_EQ(file.tensors()[1].data - file.tensors()[0].data, alignment);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.tensors()[1].data), 8), bytes_of(other));
  }
}

TEST(Gguf, WriterRefuses) {
  TempFolder folder;
  const auto write = [&](const std::vector<GgufItem>& items, const std::vector<GgufNamedTensor>& tensors) {
    write_gguf(folder.file("x.gguf"), items, tensors);
  };
  const auto misfit = [&](GgufType type, GgufValue value) {
    const std::string message = error_of(ErrorCode::kInvalidArgument, [&] {
      write({{"k", type, std::move(value)}}, {});
    });
    EXPECT_CONTAINS(message, "does not fit");
  };
  misfit(GgufType::kU8, int64_t{256});
  misfit(GgufType::kU32, int64_t{-1});
  misfit(GgufType::kI64, std::numeric_limits<uint64_t>::max());
  misfit(GgufType::kI32, 1.5);
  misfit(GgufType::kF32, 1e300);
  misfit(GgufType::kF64, int64_t{1});
  misfit(GgufType::kString, true);
  misfit(GgufType::kBool, "text");
  misfit(GgufType::kI8, std::vector<int64_t>{1, 128});
  misfit(GgufType::kArray, std::vector<int64_t>{});
  const Tensor tensor = golden_tensor(DType::kF32, {2}, 0), bools = golden_tensor(DType::kBool, {2}, 0);
  EXPECT_CONTAINS(error_of(ErrorCode::kInvalidArgument,
                           [&] {
                             write({}, {{"t", tensor}, {"t", tensor}});
                           }),
                  "twice");
  EXPECT_CONTAINS(error_of(ErrorCode::kUnsupported, [&] { write({}, {{"t", bools}}); }), "is bool");
  EXPECT_CONTAINS(error_of(ErrorCode::kInvalidArgument,
                           [&] {
                             write({{"general.alignment", GgufType::kU32, int64_t{24}}}, {});
                           }),
                  "power of two");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// Builds a file field by field; everything can be wrong.
struct RawGguf {
  std::string bytes = "GGUF" + raw<uint32_t>(3);

  static std::string text(std::string_view value) { return raw<uint64_t>(value.size()) + std::string(value); }
  RawGguf& counts(uint64_t tensors, uint64_t entries) { return add(raw(tensors) + raw(entries)); }
  RawGguf& add(std::string_view more) {
    bytes += more;
    return *this;
  }
  RawGguf& entry(std::string_view key, GgufType type, std::string_view value) {
    return add(text(key) + raw(type) + std::string(value));
  }
  RawGguf& tensor(std::string_view name, const std::vector<uint64_t>& stored_dims, uint32_t kind,
                  uint64_t offset) {
    add(text(name) + raw(static_cast<uint32_t>(stored_dims.size())));
    for (const uint64_t dim : stored_dims) add(raw(dim));
    return add(raw(kind) + raw(offset));
  }
  RawGguf& data(size_t num_bytes) {
    return add(std::string((32 - bytes.size() % 32) % 32 + num_bytes, '\0'));
  }
  GgufContent parse() const { return parse_gguf(as_bytes(bytes), "m.gguf"); }
  std::string error(ErrorCode code = ErrorCode::kInvalidData) const {
    const std::string message = error_of(code, [&] { parse(); });
    EXPECT_EQ(message.rfind("m.gguf: ", 0), 0u) << message;
    return message;
  }
};
constexpr uint32_t kF32 = 0, kQ4_0 = 2, kQ2_K = 10, kI8 = 24;

TEST(Gguf, RefusesEveryPrefix) {
  const std::string whole = read_file(golden_path("golden.gguf"));
  const GgufContent content = parse_gguf(as_bytes(whole), "whole");
  const GgufTensor& last = content.tensors.back();
  const auto end = static_cast<size_t>(last.data - as_bytes(whole).data()) + last.bytes;
  ASSERT_GT(end, whole.size() - 32);  // only padding follows
  for (size_t size = 0; size < end; ++size) {
    const std::string prefix = whole.substr(0, size);  // of its own, so that reads past its end are seen
    EXPECT_THROW(parse_gguf(as_bytes(prefix), "prefix"), Error) << size;
  }
}

TEST(Gguf, RefusesOtherFilesAndVersions) {
  EXPECT_CONTAINS(error_of(ErrorCode::kUnsupported, [] { GgufFile(golden_path("big_endian.gguf")); }),
                  "big-endian");
  RawGguf file;
  file.bytes = "GGML" + raw<uint32_t>(3);
  EXPECT_CONTAINS(file.error(), "not a GGUF file");
  file.bytes = "GGUF" + raw<uint32_t>(1);
  EXPECT_CONTAINS(file.error(ErrorCode::kUnsupported),
                  "version 1; supported are 2 and 3 (1 has 32-bit lengths");
  file.bytes = "GGUF" + raw<uint32_t>(4);
  EXPECT_CONTAINS(file.error(ErrorCode::kUnsupported), "version 4");
  file.bytes = "GGUF" + raw<uint32_t>(0);
  EXPECT_CONTAINS(file.error(ErrorCode::kUnsupported), "version 0");
}

TEST(Gguf, ReadsVersion2) {
  RawGguf file;
  file.bytes = "GGUF" + raw<uint32_t>(2);
  file.counts(1, 0).tensor("t", {3, 2}, kF32, 0).data(24);
  EXPECT_EQ(file.parse().tensors.at(0).shape, Shape({2, 3}));
}

TEST(Gguf, RefusesCountsThatTheFileCannotHold) {
  for (const uint64_t count : {uint64_t{2}, uint64_t{1} << 40, ~uint64_t{0} - 20}) {
    EXPECT_CONTAINS(RawGguf().counts(count, 0).error(), cat("tensor count is ", count));
    EXPECT_CONTAINS(RawGguf().counts(0, count).error(), cat("metadata count is ", count));
    EXPECT_CONTAINS(RawGguf().counts(0, 1).add(raw(count + 20) + std::string(19, 'k')).error(),
                    "metadata key");
    EXPECT_CONTAINS(RawGguf().counts(0, 1).entry("k", GgufType::kString, raw(count)).error(),
                    "metadata string");
    for (const GgufType type :
         {GgufType::kU8, GgufType::kU64, GgufType::kF32, GgufType::kString, GgufType::kBool})
      EXPECT_CONTAINS(RawGguf().counts(0, 1).entry("k", GgufType::kArray, raw(type) + raw(count)).error(),
                      cat("claims ", count, " items"));
  }
}

TEST(Gguf, RefusesMetadataItCannotExpress) {
  EXPECT_CONTAINS(RawGguf()
                      .counts(0, 1)
                      .entry("k", GgufType::kArray, raw(GgufType::kArray) + raw<uint64_t>(0))
                      .error(ErrorCode::kUnsupported),
                  "key \"k\" is an array of arrays");
  EXPECT_CONTAINS(
      RawGguf()
          .counts(0, 1)
          .entry("k", GgufType::kArray, raw(GgufType::kU64) + raw<uint64_t>(1) + raw(~uint64_t{0}))
          .error(ErrorCode::kUnsupported),
      "above 2^63 - 1");
  const std::string many(size_t{1} << 24, '\1');
  EXPECT_CONTAINS(
      RawGguf()
          .counts(0, 1)
          .entry("k", GgufType::kArray, raw(GgufType::kBool) + raw<uint64_t>(many.size() + 1) + many + "\1")
          .error(ErrorCode::kUnsupported),
      "at most 16777216");
  EXPECT_CONTAINS(RawGguf().counts(0, 1).entry("k", static_cast<GgufType>(13), "12345678").error(),
                  "unknown type 13");
  EXPECT_CONTAINS(
      RawGguf().counts(0, 1).entry("k", GgufType::kArray, raw<uint32_t>(99) + raw<uint64_t>(0)).error(),
      "unknown type 99");
  EXPECT_CONTAINS(RawGguf().counts(0, 1).entry("k", GgufType::kBool, "\2").error(), "stored as 2");
  EXPECT_CONTAINS(
      RawGguf().counts(0, 2).entry("k", GgufType::kU8, "1").entry("k", GgufType::kU8, "1").error(),
      "key \"k\" appears twice");
}

TEST(Gguf, RefusesBadAlignment) {
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 1u << 30, ~0u})
    EXPECT_CONTAINS(RawGguf().counts(0, 1).entry("general.alignment", GgufType::kU32, raw(alignment)).error(),
                    cat("\"general.alignment\" is ", alignment));
  EXPECT_CONTAINS(RawGguf().counts(0, 1).entry("general.alignment", GgufType::kBool, "\1").error(),
                  "is a bool");
}

TEST(Gguf, RefusesBadTensorDescriptions) {
  EXPECT_CONTAINS(RawGguf().counts(1, 0).tensor("t", {1, 1, 1, 1, 1}, kF32, 0).data(4).error(),
                  "5 dimensions");
  const std::string kind =
      RawGguf().counts(1, 0).tensor("t", {256}, kQ2_K, 0).data(84).error(ErrorCode::kUnsupported);
  EXPECT_CONTAINS(kind, "tensor \"t\" has kind 10 (q2_k)");
  EXPECT_CONTAINS(kind, "q4_k");
  EXPECT_CONTAINS(RawGguf().counts(1, 0).tensor("t", {1}, 4, 0).data(4).error(ErrorCode::kUnsupported),
                  "(unknown)");
  EXPECT_CONTAINS(RawGguf().counts(1, 0).tensor("t", {33}, kQ4_0, 0).data(99).error(), "blocks of 32");
  EXPECT_CONTAINS(RawGguf().counts(1, 0).tensor("t", {}, kQ4_0, 0).data(99).error(), "blocks of 32");
  EXPECT_CONTAINS(RawGguf().counts(1, 0).tensor("t", {~uint64_t{0}}, kF32, 0).data(4).error(), "overflows");
  EXPECT_CONTAINS(RawGguf().counts(1, 0).tensor("t", {4, uint64_t{1} << 62}, kF32, 0).data(4).error(),
                  "overflows");
  EXPECT_CONTAINS(RawGguf().counts(1, 0).tensor("t", {0, 8, uint64_t{1} << 62}, kI8, 0).data(0).error(),
                  "overflows");
  EXPECT_CONTAINS(
      RawGguf().counts(2, 0).tensor("t", {1}, kF32, 0).tensor("t", {1}, kF32, 32).data(36).error(),
      "tensor \"t\" appears twice");
}

TEST(Gguf, RefusesBadPlaces) {
  EXPECT_CONTAINS(RawGguf().counts(1, 0).tensor("t", {1}, kF32, 4).data(64).error(),
                  "expected a multiple of 32");
  EXPECT_CONTAINS(RawGguf().counts(1, 0).tensor("t", {9}, kF32, 0).data(35).error(),
                  "36 bytes from data byte 0");
  EXPECT_CONTAINS(RawGguf().counts(1, 0).tensor("t", {1}, kF32, 32).data(35).error(), "the file has 35");
  EXPECT_CONTAINS(RawGguf().counts(1, 0).tensor("t", {1}, kF32, uint64_t{0} - 32).data(64).error(),
                  "the file has 64");
  EXPECT_CONTAINS(RawGguf().counts(1, 0).tensor("t", {0}, kF32, 64).data(32).error(), "the file has 32");
  EXPECT_CONTAINS(
      RawGguf().counts(2, 0).tensor("a", {16}, kF32, 0).tensor("b", {1}, kF32, 32).data(64).error(),
      "tensors \"a\" and \"b\" overlap at data byte 32");
}

TEST(Gguf, AllowsScalarsAndEmptyTensors) {
  const GgufContent content =
      RawGguf().counts(2, 0).tensor("scalar", {}, kF32, 0).tensor("empty", {0, 5}, kI8, 32).data(32).parse();
  EXPECT_EQ(content.tensors[0].bytes, 4u);
  EXPECT_EQ(content.tensors[1].shape, Shape({5, 0}));
  EXPECT_EQ(content.tensors[1].bytes, 0u);
}

}  // namespace
}  // namespace lmdeploy
