// The small helpers: sizes without overflow, overlaps, unique JSON keys, quoting.
#include "lmdeploy/formats/tensor_bytes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lmdeploy/formats/quote.h"
#include "lmdeploy/formats/test_support.h"
#include "lmdeploy/formats/unique_keys.h"

namespace lmdeploy {
namespace {

std::optional<size_t> size_of(DType dtype, std::vector<int64_t> dims) { return tensor_bytes(dtype, dims); }

TEST(TensorBytes, Sizes) {
  EXPECT_EQ(size_of(DType::kF32, {}), 4u);
  EXPECT_EQ(size_of(DType::kBF16, {3, 5}), 30u);
  EXPECT_EQ(size_of(DType::kQ4_1, {3, 64}), 120u);
  EXPECT_EQ(size_of(DType::kQ6_K, {2, 256}), 420u);
  EXPECT_EQ(size_of(DType::kF32, {5, 0, 7}), 0u);
  EXPECT_EQ(size_of(DType::kU8, {int64_t{1} << 62}), size_t{1} << 62);
}

TEST(TensorBytes, NothingForImpossibleShapes) {
  EXPECT_FALSE(size_of(DType::kF32, {-1}));
  EXPECT_FALSE(size_of(DType::kF32, {-1, -1}));
  EXPECT_FALSE(size_of(DType::kF32, {int64_t{1} << 61}));
  EXPECT_FALSE(size_of(DType::kU8, {int64_t{1} << 32, int64_t{1} << 31}));
  EXPECT_FALSE(
      size_of(DType::kU8, {int64_t{1} << 62, 2, 0}));  // numel() would overflow before it meets the 0
  EXPECT_FALSE(size_of(DType::kQ4_0, {16}));
  EXPECT_FALSE(size_of(DType::kQ4_0, {32, 16}));
  EXPECT_FALSE(size_of(DType::kQ4_0, {}));
}

TEST(FindOverlap, ComparesNeighbours) {
  std::vector<StoredRange> apart = {{8, 12, 0}, {0, 8, 1}, {12, 12, 2}, {0, 0, 3}};
  EXPECT_FALSE(find_overlap(apart));
  EXPECT_EQ(apart[0].index, 3u);
  std::vector<StoredRange> inside = {{0, 8, 0}, {4, 4, 1}, {8, 9, 2}};
  const auto overlap = find_overlap(inside);
  ASSERT_TRUE(overlap);
  EXPECT_EQ(overlap->first.index, 0u);
  EXPECT_EQ(overlap->second.index, 1u);
  std::vector<StoredRange> by_one_byte = {{4, 8, 0}, {0, 5, 1}};
  EXPECT_TRUE(find_overlap(by_one_byte));
}

TEST(UniqueKeys, RefusesDuplicatesAtAnyDepth) {
  for (const char* text : {R"({})", R"([{"a": 1}, {"a": 1}])", R"({"a": {"a": {"a": 1}}, "b": "a"})",
                           R"("a")", R"({"": 1, "a": ""})"})
    EXPECT_NO_THROW(refuse_duplicate_keys(text, "t")) << text;
  const std::string longest(5000, 'k');
  std::string escaped;  // comes in parts: longer than the parser's buffer for decoded text
  for (int i = 0; i < 5000; ++i) escaped += R"(\u0061)";
  EXPECT_NO_THROW(refuse_duplicate_keys(cat("{\"x", escaped, "\": 1, \"y", escaped, "\": 2}"), "t"));
  for (const std::string& text :
       {std::string(R"({"a": 1, "a": 1})"), std::string(R"([{"b": {"a": 1, "b": 2, "a": 3}}])"),
        std::string(R"({"a": {"x": 1}, "b": 1, "a": 2})"), std::string(R"({"\u0061": 1, "a": 1})"),
        cat("{\"", longest, "\": 1, \"", longest, "\": 2}"),
        cat("{\"", escaped, "\": 1, \"", escaped, "\": 2}")})
    EXPECT_CONTAINS(error_of(ErrorCode::kInvalidData, [&] { refuse_duplicate_keys(text, "t"); }),
                    "appears twice");
}

TEST(Quote, ShowsTextSafely) {
  EXPECT_EQ(quote("blk.0.attn_q"), "\"blk.0.attn_q\"");
  EXPECT_EQ(quote("a\n\xff"), "\"a\\x0a\\xff\"");
  EXPECT_EQ(quote(std::string(81, 'x')), "\"" + std::string(80, 'x') + "...\"");
  EXPECT_EQ(quote(std::string(80, 'x')), "\"" + std::string(80, 'x') + "\"");
}

}  // namespace
}  // namespace lmdeploy
