#include "lmdeploy/pipeline/device.h"

#include "lmdeploy/pipeline/expect_error.h"

namespace lmdeploy {
namespace {

PipelineConfig config_with(const std::function<void(PipelineConfig&)>& change) {
  PipelineConfig config;
  config.model_path = "somewhere";
  change(config);
  return config;
}

void expect_refused(ErrorCode code, std::initializer_list<const char*> words,
                    const std::function<void(PipelineConfig&)>& change) {
  expect_error(code, words, [&] { check_config(config_with(change)); });
}

TEST(Device, ConfigFieldsAreChecked) {
  EXPECT_NO_THROW(check_config(config_with([](PipelineConfig&) {})));
  const ErrorCode bad = ErrorCode::kInvalidArgument;
  expect_refused(bad, {"model_path"}, [](PipelineConfig& c) { c.model_path.clear(); });
  expect_refused(bad, {"dtype", "int8", "float32"}, [](PipelineConfig& c) { c.dtype = "int8"; });
  expect_refused(bad, {"device_type", "tpu"}, [](PipelineConfig& c) { c.device_type = "tpu"; });
  expect_refused(bad, {"session_len", "-1"}, [](PipelineConfig& c) { c.session_len = -1; });
  expect_refused(bad, {"max_batch_size", "0"}, [](PipelineConfig& c) { c.max_batch_size = 0; });
  expect_refused(bad, {"cache_max_entry_count"}, [](PipelineConfig& c) { c.cache_max_entry_count = -0.5; });
  expect_refused(bad, {"rope_scaling_factor", "0.5"}, [](PipelineConfig& c) { c.rope_scaling_factor = 0.5; });
  expect_refused(bad, {"quant_policy", "3"}, [](PipelineConfig& c) { c.quant_policy = 3; });
}

TEST(Device, WhatThisBuildLacksIsNamed) {
  expect_refused(ErrorCode::kUnsupported, {"not supported yet: quant_policy 8", "use 0"},
                 [](PipelineConfig& c) { c.quant_policy = 8; });
  expect_refused(ErrorCode::kUnsupported, {"CUDA", "use device_type cpu"},
                 [](PipelineConfig& c) { c.device_type = "cuda"; });
}

TEST(Device, KvDtypes) {
  EXPECT_EQ(kv_dtype("auto"), DType::kF16);
  EXPECT_EQ(kv_dtype("float16"), DType::kF16);
  EXPECT_EQ(kv_dtype("bfloat16"), DType::kBF16);
  EXPECT_EQ(kv_dtype("float32"), DType::kF32);
}

TEST(Device, KvPoolSize) {
  const KvDemand demand = {.block_bytes = 1000, .block_len = 64, .session_len = 130, .max_batch_size = 4};
  EXPECT_EQ(kv_pool_bytes(0, demand, 1000000), 12000u);  // 3 blocks a session, 4 sessions
  EXPECT_EQ(kv_pool_bytes(0, demand, 20000), 5000u);     // a quarter of what is there
  EXPECT_EQ(kv_pool_bytes(0.5, demand, 1000000), 500000u);
  EXPECT_EQ(kv_pool_bytes(0.5, demand, 100), 1000u);  // one block at least
}

}  // namespace
}  // namespace lmdeploy
