#include "lmdeploy/bench/random_checkpoint.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/models/model_plan.h"

namespace lmdeploy {
namespace {

// Published sizes of the models, in millions of weights.
TEST(RandomCheckpoint, ShapesHaveTheSizeOfTheirModels) {
  const std::pair<const char*, double> kMillions[] = {
      {"smollm-135m", 134.5}, {"qwen2.5-0.5b", 494.0}, {"qwen3-0.6b", 596.0},
      {"llama-1b", 1235.8},   {"llama-3b", 3212.7},    {"qwen2.5-7b", 7615.6},
      {"llama2-7b", 6738.4},  {"llama-8b", 8030.3},    {"mixtral-8x7b", 46702.8}};
  for (const auto& [name, millions] : kMillions) {
    const auto checkpoint = make_random_checkpoint(name, DType::kBF16, 1);
    double count = 0;
    for (const TensorInfo& tensor : checkpoint->tensors()) count += static_cast<double>(tensor.shape.numel());
    EXPECT_NEAR(1e-6 * count, millions, 0.1) << name;
  }
  EXPECT_EQ(model_shape_names().size(), std::size(kMillions) + 1);  // and a tiny one
}

TEST(RandomCheckpoint, EachShapeIsAModelOfItsFamily) {
  for (const std::string& name : model_shape_names()) {
    const auto checkpoint = make_random_checkpoint(name, DType::kF16, 1);
    EXPECT_TRUE(plan_model(*checkpoint).load.ignored.empty()) << name;  // throws where tensors are missing
  }
}

TEST(RandomCheckpoint, KindsOfCheckpointsLeaveTheEndsIn16Bits) {
  for (const DType kind : {DType::kU4G128, DType::kF8G64}) {
    const auto checkpoint = make_random_checkpoint("mixtral-8x7b", kind, 1);
    for (const TensorInfo& tensor : checkpoint->tensors()) {
      if (tensor.shape.rank() != 2) continue;
      const bool is_end = tensor.name.starts_with("lm_head") || tensor.name.starts_with("model.embed") ||
                          tensor.name.ends_with("moe.gate.weight");
      EXPECT_EQ(tensor.dtype, is_end ? DType::kF16 : kind) << tensor.name;
    }
  }
  const auto file_of_gguf = make_random_checkpoint("tiny", DType::kQ8_0, 1);
  EXPECT_EQ(file_of_gguf->tensors().front().dtype, DType::kQ8_0);
}

TEST(RandomCheckpoint, TensorsAreMadeWhenAskedForAndAgain) {
  const auto checkpoint = make_random_checkpoint("tiny", DType::kQ8_0, 1);
  EXPECT_EQ(checkpoint->making_seconds(), 0);
  const ConstTensorView first = checkpoint->tensor(0);
  const std::vector<std::byte> bytes(first.data(), first.data() + first.rows() * first.row_stride_bytes());
  EXPECT_GT(checkpoint->making_seconds(), 0);
  checkpoint->drop(0);
  const ConstTensorView again = checkpoint->tensor(0);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), again.data()));
}

TEST(RandomCheckpoint, RefusesByName) {
  expect_error(ErrorCode::kInvalidArgument, {"there is no shape gpt-5", "llama-8b"},
               [] { make_random_checkpoint("gpt-5", DType::kBF16, 1); });
  expect_error(ErrorCode::kUnsupported, {"embed_tokens has 576 columns; q4_k needs a multiple of 256"},
               [] { make_random_checkpoint("smollm-135m", DType::kQ4_K, 1); });
}

}  // namespace
}  // namespace lmdeploy
