// F47: from cache_max_entry_count to blocks, and what the log says of it. F48: what a model that does not fit
// says.
#include "lmdeploy/pipeline/memory_report.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/engine/block_groups.h"
#include "lmdeploy/engine/kv_pool.h"
#include "lmdeploy/pipeline/device.h"

namespace lmdeploy {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

/// Blocks of 64 tokens of 2 MiB in each group of layers; it computes nothing.
class SizedModel final : public Model {
 public:
  explicit SizedModel(size_t num_groups = 1) : groups_(num_groups) { spec_.max_positions = 8192; }
  const DecoderSpec& spec() const override { return spec_; }
  KvLayout kv_layout(DType dtype, int64_t block_len) const override {
    return {.dtype = dtype, .num_layers = 32, .num_kv_heads = 4, .head_dim = 64, .block_len = block_len};
  }
  std::span<const KvGroup> kv_groups() const override { return groups_; }
  TensorView forward(const StepInput&, const KvCacheView&) override { return {}; }
  ConstTensorView hidden_states() const override { return {}; }
  size_t weight_bytes() const override { return 0; }
  size_t buffer_bytes() const override { return 0; }
  StepWork step_work(const StepShape&, DType) const override { return {}; }

 private:
  DecoderSpec spec_;
  std::vector<KvGroup> groups_;
};

EngineConfig resolved(double cache_max_entry_count, const Model& model = SizedModel()) {
  EngineConfig config;
  set_kv_pool(cache_max_entry_count, 14 * kGiB, config);
  return resolve_config(config, model, 14 * kGiB);
}

TEST(KvPoolSize, AShareOfTheFreeMemory) {
  ASSERT_EQ(SizedModel().kv_layout(DType::kF16, 64).block_bytes(), int64_t{2} << 20);
  EXPECT_EQ(resolved(0.5).num_blocks, 3584);
  EXPECT_EQ(resolved(0.5).session_len, 8192);
  EXPECT_EQ(resolved(0.999).num_blocks, 7160);
}

TEST(KvPoolSize, ANumberOfBlocks) {
  EXPECT_EQ(resolved(3584).num_blocks, 3584);
  EXPECT_EQ(resolved(3584).session_len, 8192);
  EXPECT_EQ(resolved(1.0).num_blocks, 1);
}

TEST(KvPoolSize, SessionsAreCutToWhatTheBlocksHold) {
  EXPECT_EQ(resolved(1.0).session_len, 64);
  EXPECT_EQ(resolved(100).session_len, 6400);
}

TEST(KvPoolSize, BlocksThatHoldNoRequestAreRefused) {
  expect_error(ErrorCode::kInvalidArgument, {"1 blocks holds no sequence", "raise cache_max_entry_count"},
               [] { resolved(1.0, SizedModel(2)); });
  expect_error(ErrorCode::kInvalidArgument,
               {"holds no block", "2097152 bytes", "raise cache_max_entry_count"},
               [] { resolved(0.0001); });  // 1.4 MiB
}

TEST(KvPoolSize, ValuesThatMeanNothingAreRefused) {
  for (const double count : {-1.0, 0.0, 1.5}) {
    PipelineConfig config;
    config.model_path = "somewhere";
    config.cache_max_entry_count = count;
    expect_error(ErrorCode::kInvalidArgument, {"cache_max_entry_count is", "a share of memory in (0, 1)"},
                 [&] { check_config(config); });
  }
}

TEST(KvPoolReport, SaysWhatTheSizeComesFrom) {
  KvPoolReport report = {.free_bytes = 14 * kGiB,
                         .cache_max_entry_count = 0.5,
                         .num_blocks = 3584,
                         .block_len = 64,
                         .block_bytes = int64_t{2} << 20,
                         .session_len = 8192,
                         .session_blocks = 128,
                         .max_batch_size = 256};
  EXPECT_EQ(
      to_string(report),
      "KV cache: 14336 MiB free after weights and work space, a share of 0.5 of that: 3584 blocks of 2048 "
      "KiB, 229376 tokens; max concurrency at session_len 8192: 28 (max_batch_size 256)");
  report.cache_max_entry_count = 3584;
  EXPECT_NE(to_string(report).find("work space, a given number of blocks: 3584"), std::string::npos);
  report.cache_max_entry_count = 0;
  EXPECT_NE(to_string(report).find("work space, its size by max_batch_size: 3584"), std::string::npos);
  report.num_groups = 2;
  EXPECT_NE(to_string(report).find("114688 tokens in 2 groups of layers"), std::string::npos);
}

class SizedCheckpoint final : public Checkpoint {
 public:
  SizedCheckpoint(std::initializer_list<std::pair<DType, Shape>> tensors) {
    for (const auto& [dtype, shape] : tensors) {
      TensorInfo& info = tensors_.emplace_back();
      info.dtype = dtype;
      info.shape = shape;
    }
  }
  ConstTensorView tensor(size_t) const override { return {}; }
  void drop(size_t) const override {}
};

TEST(LoadMemory, WeightsAreCountedAsTheyAreKept) {
  const SizedCheckpoint checkpoint = {
      {DType::kF32, {10, 20}}, {DType::kBF16, {30}}, {DType::kQ8_0, {2, 32}}, {DType::kI32, {}}};
  EXPECT_EQ(weight_bytes(checkpoint, std::nullopt), 800u + 60 + 68);
  EXPECT_EQ(weight_bytes(checkpoint, DType::kF16), 400u + 60 + 68);
}

TEST(LoadMemory, SaysHowMuchIsMissing) {
  LoadMemory memory = {.weight_bytes = 15 * kGiB,
                       .free_bytes = 10 * kGiB,
                       .may_share = true,
                       .max_prefill_token_num = 8192,
                       .max_batch_size = 256};
  EXPECT_EQ(want_of_memory(memory),
            "the weights take about 15360 MiB, 10240 MiB were free: at least 5121 MiB are missing; use a "
            "checkpoint "
            "with weights of fewer bits, or tp 2 or more to share them among GPUs");
  memory.may_share = false;
  EXPECT_EQ(want_of_memory(memory).find("tp 2"), std::string::npos);
  memory.num_sharing = 2;
  EXPECT_EQ(
      want_of_memory(memory),
      "the weights take about 7680 MiB on each GPU, 10240 MiB were free: the buffers find no room; lower "
      "max_prefill_token_num (8192) or max_batch_size (256)");
  memory.may_share = true;
  memory.free_bytes = 5 * kGiB;
  EXPECT_NE(want_of_memory(memory).find("at least 2561 MiB are missing"), std::string::npos);
  EXPECT_NE(want_of_memory(memory).find("or tp 4 or more"), std::string::npos);
  memory.free_bytes = 0;
  EXPECT_NE(want_of_memory(memory).find("MiB are missing"), std::string::npos);
}

}  // namespace
}  // namespace lmdeploy
