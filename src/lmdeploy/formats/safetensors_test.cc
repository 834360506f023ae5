// safetensors: equal bytes with the reference implementation, and every kind of damaged header.
#include "lmdeploy/formats/safetensors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "lmdeploy/formats/output_file.h"
#include "lmdeploy/formats/test_support.h"

namespace lmdeploy {
namespace {

struct GoldenTensor {
  std::string name;
  DType dtype;
  Shape shape;
};
// As in make_golden.py.
const std::vector<GoldenTensor>& golden_tensors() {
  static const std::vector<GoldenTensor> tensors = {
      {"a.f32", DType::kF32, {2, 3}}, {"b.bf16", DType::kBF16, {3, 5}},   {"c.f16", DType::kF16, {7}},
      {"d.i64", DType::kI64, {3}},    {"e.u8", DType::kU8, {2, 3, 2, 1}}, {"f.bool", DType::kBool, {5}},
      {"g.f64", DType::kF64, {2}},    {"h.i32", DType::kI32, {3}},        {"i.i16", DType::kI16, {3}},
      {"j.i8", DType::kI8, {3}},      {"k.scalar", DType::kF32, {}},      {"l.empty", DType::kF32, {0, 4}}};
  return tensors;
}

// A file from a header text and `data_bytes` zeros.
std::string file_of(std::string_view header, size_t data_bytes) {
  return raw<uint64_t>(header.size()) + std::string(header) + std::string(data_bytes, '\0');
}

std::string error_of_bytes(ErrorCode code, const std::string& bytes) {
  const std::string message = error_of(code, [&] { parse_safetensors(as_bytes(bytes), "m.safetensors"); });
  EXPECT_EQ(message.rfind("m.safetensors", 0), 0u) << message;
  return message;
}
std::string invalid(std::string_view header, size_t data_bytes) {
  return error_of_bytes(ErrorCode::kInvalidData, file_of(header, data_bytes));
}

TEST(Safetensors, ReadsWhatTheReferenceWrote) {
  const SafetensorsFile file(golden_path("golden.safetensors"));
  ASSERT_EQ(file.tensors().size(), golden_tensors().size());
  for (size_t i = 0; i < golden_tensors().size(); ++i) {
    const GoldenTensor& want = golden_tensors()[i];
    const SafetensorsTensor* got = file.find(want.name);
    ASSERT_NE(got, nullptr) << want.name;
    EXPECT_EQ(got->dtype, want.dtype) << want.name;
    EXPECT_EQ(got->shape, want.shape) << want.name;
    const Tensor tensor = golden_tensor(want.dtype, want.shape, static_cast<int>(i));
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(got->data), got->bytes), bytes_of(tensor))
        << want.name;
  }
  ASSERT_EQ(file.metadata().size(), 1u);
  EXPECT_EQ(file.metadata()[0], std::pair(std::string("format"), std::string("pt")));
  EXPECT_EQ(file.find("a.f3"), nullptr);
}

TEST(Safetensors, WritesTheSameBytesAsTheReference) {
  TempFolder folder;
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  for (size_t i = golden_tensors().size(); i-- > 0;) {  // the order given does not matter
    const GoldenTensor& golden = golden_tensors()[i];
    tensors.push_back(golden_tensor(golden.dtype, golden.shape, static_cast<int>(i)));
    named.push_back({golden.name, tensors.back()});
  }
  const std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"}};
  write_safetensors(folder.file("out.safetensors"), named, metadata);
  EXPECT_EQ(read_file(folder.file("out.safetensors")), read_file(golden_path("golden.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(folder.file("out.safetensors.partial")));
}

TEST(Safetensors, WritesColumnSlicesPacked) {
  TempFolder folder;
  const Tensor wide = golden_tensor(DType::kF32, {3, 8}, 0);
  const ConstTensorView slice = ConstTensorView(wide).slice_cols(2, 3);
  write_safetensors(folder.file("slice.safetensors"), std::vector<NamedTensor>{{"w", slice}});
  const SafetensorsFile file(folder.file("slice.safetensors"));
  ASSERT_EQ(file.tensors()[0].shape, Shape({3, 3}));
  const ConstTensorView got(file.tensors()[0].data, DType::kF32, {3, 3});
  for (int64_t row = 0; row < 3; ++row)
    EXPECT_EQ(std::memcmp(got.row_data(row), slice.row_data(row), 12), 0) << row;
}

TEST(Safetensors, WriterRefuses) {
  TempFolder folder;
  const Tensor tensor = golden_tensor(DType::kF32, {2}, 0),
               quantized = golden_tensor(DType::kQ4_0, {1, 32}, 0);
  const auto write = [&](const std::vector<NamedTensor>& tensors) {
    write_safetensors(folder.file("x.safetensors"), tensors);
  };
  EXPECT_CONTAINS(error_of(ErrorCode::kInvalidArgument,
                           [&] {
                             write({{"a", tensor}, {"b", tensor}, {"a", tensor}});
                           }),
                  "\"a\"");
  EXPECT_CONTAINS(error_of(ErrorCode::kInvalidArgument,
                           [&] {
                             write({{"__metadata__", tensor}});
                           }),
                  "reserves");
  EXPECT_CONTAINS(error_of(ErrorCode::kUnsupported, [&] { write({{"q", quantized}}); }), "q4_0");
  EXPECT_CONTAINS(error_of(ErrorCode::kIo, [&] { write_safetensors(folder.file("no/x"), {}); }), "no/x");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Safetensors, FailedWriteLeavesNothing) {
  TempFolder folder;
  std::filesystem::create_directory(folder.file("taken"));
  EXPECT_CONTAINS(error_of(ErrorCode::kIo, [&] { write_safetensors(folder.file("taken"), {}); }),
                  "Is a directory");
  EXPECT_FALSE(std::filesystem::exists(folder.file("taken.partial")));
}

TEST(OutputFile, LinksAreFollowedAndPipesStay) {
  namespace fs = std::filesystem;
  TempFolder folder;
  folder.write("real", "old");
  fs::create_symlink("real", folder.file("link"));
  const auto write = [](const std::string& path) {
    OutputFile file(path);
    file.write("new");
    file.commit();
  };
  write(folder.file("link"));
  EXPECT_TRUE(fs::is_symlink(folder.file("link")));
  EXPECT_EQ(read_file(folder.file("real")), "new");
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write(pipe);
  char text[4] = {};
  EXPECT_EQ(::read(reader, text, 3), 3);
  EXPECT_STREQ(text, "new");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));
  { const OutputFile never_written(pipe); }
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST(OutputFile, PipesWithoutANameAreWrittenToThroughTheirLinks) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  OutputFile file(cat("/proc/self/fd/", ends[1]));
  file.write("new");
  file.commit();
  char text[4] = {};
  EXPECT_EQ(::read(ends[0], text, 3), 3);
  EXPECT_STREQ(text, "new");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Safetensors, EmptyFileRoundTrips) {
  TempFolder folder;
  write_safetensors(folder.file("none.safetensors"), {});
  EXPECT_TRUE(SafetensorsFile(folder.file("none.safetensors")).tensors().empty());
}

TEST(Safetensors, RefusesEveryPrefix) {
  const std::string whole = read_file(golden_path("golden.safetensors"));
  ASSERT_NO_THROW(parse_safetensors(as_bytes(whole), "whole"));
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string prefix = whole.substr(0, size);  // of its own, so that reads past its end are seen
    EXPECT_THROW(parse_safetensors(as_bytes(prefix), "prefix"), Error) << size;
  }
  EXPECT_THROW(parse_safetensors(as_bytes(whole + "x"), "longer"), Error);
}

TEST(Safetensors, RefusesHostileHeaderLengths) {
  for (const uint64_t length : {uint64_t{3}, uint64_t{100'000'001}, uint64_t{1} << 62, ~uint64_t{0}})
    EXPECT_CONTAINS(error_of_bytes(ErrorCode::kInvalidData, raw(length) + "{}"), cat("claims ", length));
  EXPECT_CONTAINS(error_of_bytes(ErrorCode::kInvalidData, raw<uint64_t>(0)), "not a safetensors file");
  EXPECT_CONTAINS(error_of_bytes(ErrorCode::kInvalidData, file_of("[]", 0)), "not a safetensors file");
  EXPECT_CONTAINS(error_of_bytes(ErrorCode::kInvalidData, file_of("{", 0)), "not valid JSON");
}

TEST(Safetensors, RefusesHeadersAboveTheLimit) {
  TempFolder folder;
  const std::string path = folder.write("m.safetensors", raw<uint64_t>(100'000'001));
  std::filesystem::resize_file(path, 100'000'100);  // sparse: the header would fit
  EXPECT_CONTAINS(error_of(ErrorCode::kInvalidData, [&] { SafetensorsFile file(path); }),
                  "at most 100000000 are allowed");
}

TEST(Safetensors, RefusesMisshapenEntries) {
  EXPECT_CONTAINS(invalid(R"({"a": 1})", 0), "tensor \"a\" is an integer, expected an object");
  EXPECT_CONTAINS(invalid(R"({"a": {"shape": [1], "data_offsets": [0, 4]}})", 4), "has no dtype");
  EXPECT_CONTAINS(invalid(R"({"a": {"dtype": "F32", "data_offsets": [0, 4]}})", 4), "has no shape");
  EXPECT_CONTAINS(invalid(R"({"a": {"dtype": "F32", "shape": [1]}})", 4), "has no data_offsets");
  EXPECT_CONTAINS(invalid(R"({"a": {"dtype": 1, "shape": [1], "data_offsets": [0, 4]}})", 4),
                  "dtype that is an integer");
  EXPECT_CONTAINS(invalid(R"({"a": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}})", 4),
                  "shape that is an integer");
  EXPECT_CONTAINS(invalid(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})", 4),
                  "1 data_offsets");
  EXPECT_CONTAINS(invalid(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "x": 1}})", 4),
                  "unknown field \"x\"");
  EXPECT_CONTAINS(invalid(R"({"__metadata__": [1]})", 0), "__metadata__ is an array");
  EXPECT_CONTAINS(invalid(R"({"__metadata__": {"k": 1}})", 0), "key \"k\" is an integer");
}

TEST(Safetensors, RefusesNumbersThatAreNoSizes) {
  for (const char* dim : {"-1", "1.0", "1e0", "\"1\"", "18446744073709551615", "null"})
    EXPECT_CONTAINS(
        invalid(cat(R"({"a": {"dtype": "F32", "shape": [)", dim, R"(], "data_offsets": [0, 4]}})"), 4),
        "shape with an item that is no integer");
  // Products that wrap to 4 bytes, or to nothing, in 64 bits.
  for (const char* shape : {"4611686018427387904, 4", "4294967296, 4294967296, 4",
                            "4611686018427387904, 8, 0", "9223372036854775807"})
    EXPECT_CONTAINS(
        invalid(cat(R"({"a": {"dtype": "F32", "shape": [)", shape, R"(], "data_offsets": [0, 0]}})"), 0),
        "overflows");
}

TEST(Safetensors, RefusesRangesThatDoNotFit) {
  const auto with_offsets = [](std::string_view offsets, size_t data_bytes = 8) {
    return invalid(cat(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [)", offsets, "]}}"),
                   data_bytes);
  };
  EXPECT_CONTAINS(with_offsets("0, 12"), "within the 8 bytes");
  EXPECT_CONTAINS(with_offsets("8, 0"), "within the 8 bytes");
  EXPECT_CONTAINS(with_offsets("9223372036854775800, 9223372036854775807"), "within the 8 bytes");
  EXPECT_CONTAINS(with_offsets("0, 4"), "has 4 bytes of data, but shape [2] of f32 takes 8");
  EXPECT_CONTAINS(with_offsets("0, 12", 12), "has 12 bytes of data, but shape [2] of f32 takes 8");
}

TEST(Safetensors, RefusesOverlapsAndHoles) {
  const auto two = [](std::string_view first, std::string_view second, size_t data_bytes) {
    return invalid(cat(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [)", first,
                       R"(]}, "b": {"dtype": "U8", "shape": [4], "data_offsets": [)", second, "]}}"),
                   data_bytes);
  };
  EXPECT_CONTAINS(two("0, 4", "2, 6", 6), "tensors \"a\" and \"b\" overlap at data byte 2");
  EXPECT_CONTAINS(two("0, 4", "0, 4", 4), "overlap at data byte 0");
  EXPECT_CONTAINS(two("0, 4", "5, 9", 9), "data bytes 4 to 5 of 9 belong to no tensor");
  EXPECT_CONTAINS(two("1, 5", "5, 9", 9), "data bytes 0 to 1");
  EXPECT_CONTAINS(two("4, 8", "0, 4", 9), "data bytes 8 to 9");
}

TEST(Safetensors, RefusesTheSameNameTwice) {
  EXPECT_CONTAINS(invalid(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
                              "a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})",
                          4),
                  "key \"a\" appears twice");
  EXPECT_CONTAINS(invalid(R"({"a": {"dtype": "U8", "shape": [4], "shape": [4], "data_offsets": [0, 4]}})", 4),
                  "key \"shape\" appears twice");
  // The same name, once escaped.
  EXPECT_CONTAINS(invalid(R"({"a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]},
                              "\u0061": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}})",
                          0),
                  "key \"a\" appears twice");
}

TEST(Safetensors, NamesWhatItCannotExpress) {
  const std::string fp8 =
      error_of_bytes(ErrorCode::kUnsupported,
                     file_of(R"({"w": {"dtype": "F8_E8M0", "shape": [4], "data_offsets": [0, 4]}})", 4));
  EXPECT_CONTAINS(fp8, "tensor \"w\" has dtype \"F8_E8M0\"");
  EXPECT_CONTAINS(fp8, "BF16");
  EXPECT_CONTAINS(
      error_of_bytes(ErrorCode::kUnsupported,
                     file_of(R"({"w": {"dtype": "U8", "shape": [1,1,1,2,2], "data_offsets": [0, 4]}})", 4)),
      "5 dimensions, at most 4");
}

TEST(Safetensors, HostileNamesAreQuoted) {
  const std::string message = invalid(cat("{\"", std::string(5000, 'n'), "\\n\": 1}"), 0);
  EXPECT_LT(message.size(), 200u);
  EXPECT_CONTAINS(invalid("{\"a\\nb\": 1}", 0), "a\\x0ab");
}

}  // namespace
}  // namespace lmdeploy
