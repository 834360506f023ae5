#include "lmdeploy/pipeline/device.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/core/half.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/safetensors.h"
#include "lmdeploy/formats/test_support.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {
namespace {

PipelineConfig config_with(const std::function<void(PipelineConfig&)>& change) {
  PipelineConfig config;
  config.model_path = "somewhere";
  change(config);
  return config;
}

void expect_refused(ErrorCode code, const std::vector<std::string>& words,
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
  expect_refused(bad, {"max_batch_size", "65536"}, [](PipelineConfig& c) { c.max_batch_size = 1 << 30; });
  expect_refused(bad, {"cache_block_seq_len", "65536"},
                 [](PipelineConfig& c) { c.cache_block_seq_len = int64_t{1} << 62; });
  for (std::optional<int64_t> PipelineConfig::*field :
       {&PipelineConfig::max_prefill_token_num, &PipelineConfig::num_tokens_per_iter})
    expect_refused(bad, {"9223372036854775807", "16777216"},
                   [&](PipelineConfig& c) { c.*field = std::numeric_limits<int64_t>::max(); });
  expect_refused(bad, {"num_threads", "100000", "1 to 1024"},
                 [](PipelineConfig& c) { c.num_threads = 100000; });
  for (const double count : {-0.5, 0.0, 1.5, 2147483648.0})
    expect_refused(bad, {"cache_max_entry_count", "in (0, 1), or a whole number of blocks"},
                   [&](PipelineConfig& c) { c.cache_max_entry_count = count; });
  expect_refused(bad, {"rope_scaling_factor", "0.5"}, [](PipelineConfig& c) { c.rope_scaling_factor = 0.5; });
  expect_refused(bad, {"quant_policy is 3", "8 (int8)"}, [](PipelineConfig& c) { c.quant_policy = 3; });
  for (const int policy : {0, 4, 8})
    EXPECT_NO_THROW(check_config(config_with([&](PipelineConfig& c) { c.quant_policy = policy; })));
}

const CudaDevice kL4 = {.name = "NVIDIA L4", .major = 8, .minor = 9},
                 kT4 = {.name = "Tesla T4", .major = 7, .minor = 5};

// A checkpoint of made-up tensors.
class SomeCheckpoint final : public Checkpoint {
 public:
  SomeCheckpoint(JsonObject config, std::initializer_list<std::pair<DType, int64_t>> tensors) {
    config_ = std::move(config);
    for (const auto& [dtype, size] : tensors) {
      TensorInfo& info = tensors_.emplace_back();
      info.name = cat("t", tensors_.size());
      info.dtype = dtype;
      info.shape = {size};
    }
  }
  ConstTensorView tensor(size_t) const override { return {}; }
  void drop(size_t) const override {}
};

constexpr DType kIntegers[] = {DType::kQ4_0,  DType::kQ4_1,   DType::kQ5_0,  DType::kQ5_1,
                               DType::kQ8_0,  DType::kQ4_K,   DType::kQ5_K,  DType::kQ6_K,
                               DType::kU4G32, DType::kU4G128, DType::kU5G32, DType::kI8G64};
constexpr int64_t kLarge = 1'000'000'000;  // elements

TEST(Device, ModelsOfIntegersRoundActivations) {
  for (const DType dtype : kIntegers)
    EXPECT_TRUE(rounds_activations("auto", SomeCheckpoint({}, {{dtype, 256}}))) << to_string(dtype);
  const SomeCheckpoint most({}, {{DType::kQ4_K, 512}, {DType::kQ8_0, 256}, {DType::kF32, 767}}),
      half({}, {{DType::kQ4_K, 512}, {DType::kQ8_0, 256}, {DType::kF32, 768}});
  for (const char* dtype : {"auto", "float16", "bfloat16"}) {
    EXPECT_TRUE(rounds_activations(dtype, most)) << dtype;
    EXPECT_FALSE(rounds_activations(dtype, half)) << dtype;
  }
}

TEST(Device, ModelsOfFloatsRoundActivationsIfLarge) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8G64}) {
    const SomeCheckpoint small({}, {{dtype, kLarge - 1}}), large({}, {{dtype, kLarge - 1}, {dtype, 1}});
    EXPECT_FALSE(rounds_activations("auto", small)) << to_string(dtype);
    EXPECT_TRUE(rounds_activations("auto", large)) << to_string(dtype);
    EXPECT_TRUE(rounds_activations("bfloat16", large)) << to_string(dtype);
  }
}

TEST(Device, Float32RoundsNoActivations) {
  for (const DType dtype : {DType::kBF16, DType::kQ4_0, DType::kI8G64})
    for (const int64_t size : {int64_t{256}, kLarge})
      EXPECT_FALSE(rounds_activations("float32", SomeCheckpoint({}, {{dtype, size}}))) << to_string(dtype);
}

// An AWQ folder: 128 x 64 integers of 4 bits, eight in each word of the file, and an embedding.
void write_awq(const TempFolder& folder, int64_t embedding_rows) {
  const Tensor words(DType::kI32, {128, 8}), zeros(DType::kI32, {1, 8}), scales(DType::kF16, {1, 64}),
      embedding(DType::kF16, {embedding_rows, 128});
  const NamedTensor tensors[] = {
      {"m.qweight", words}, {"m.qzeros", zeros}, {"m.scales", scales}, {"embed.weight", embedding}};
  write_safetensors(folder.file("model.safetensors"), tensors);
  folder.write("config.json",
               R"({"architectures": ["LlamaForCausalLM"], "quantization_config": {"quant_method": "awq",
                   "version": "gemm", "bits": 4, "zero_point": true, "group_size": 128}})");
}

TEST(Device, PackedIntegersCountOneByOne) {
  const auto rounds = [](int64_t embedding_rows) {
    const TempFolder folder;
    write_awq(folder, embedding_rows);
    return rounds_activations("auto", *open_checkpoint(folder.path()));
  };
  EXPECT_TRUE(rounds(63));
  EXPECT_FALSE(rounds(64));
}

// One row of Q8_0: scales of 1, integers 1; x = 1/3 has no exact byte.
double product_of_thirds(const Kernels& kernels) {
  Tensor weight(DType::kQ8_0, {1, 64}), x(DType::kF32, {1, 64}), out(DType::kF32, {1, 1});
  const F16 one = to_f16(1);
  for (size_t at = 0; at < weight.bytes(); at += 34) {
    std::memcpy(&weight.span<uint8_t>()[at], &one, sizeof(one));
    std::fill_n(&weight.span<uint8_t>()[at + 2], 32, uint8_t{1});
  }
  for (size_t k = 0; k < 64; ++k) x.span<float>()[k] = k % 32 == 0 ? 1.0f : 1.0f / 3;
  const ConstTensorView parts[] = {weight};
  kernels.linear(out, x, *kernels.pack_weight(parts));
  return out.span<float>()[0];
}

TEST(Device, ActivationsInBytesCanBeChosen) {
  const SomeCheckpoint floats({}, {{DType::kF16, 64}}), integers({}, {{DType::kQ8_0, 64}});
  const auto product = [&](const Checkpoint& model, std::optional<bool> chosen, const char* dtype = "auto") {
    PipelineConfig config = config_with([&](PipelineConfig& c) {
      c.device_type = "cpu";
      c.dtype = dtype;
      c.rounded_activations = chosen;
    });
    return product_of_thirds(*make_kernels(config, model));
  };
  const double exact = 2 + 62.0 / 3, in_bytes = 2 + 62.0 * 42 / 127;
  EXPECT_NEAR(product(floats, std::nullopt), exact, 1e-5);
  EXPECT_NEAR(product(integers, std::nullopt, "float32"), exact, 1e-5);
  EXPECT_NEAR(product(integers, false), exact, 1e-5);
  if (!cpu_isa_available(CpuIsa::kAvx2)) GTEST_SKIP() << "this processor has no products of bytes";
  EXPECT_NEAR(product(integers, std::nullopt), in_bytes, 1e-5);
  EXPECT_NEAR(product(floats, true), in_bytes, 1e-5);
  EXPECT_NEAR(product(integers, true, "float32"), in_bytes, 1e-5);
}

TEST(Device, WhatThisBuildLacksIsNamed) {
  for (const int policy : {16, 17, 42})
    expect_refused(ErrorCode::kUnsupported, {cat("not supported yet: quant_policy ", policy), "use 8"},
                   [&](PipelineConfig& c) { c.quant_policy = policy; });
  const auto ask_for_cuda = [](PipelineConfig& c) { c.device_type = "cuda"; };
  if (cuda_status().devices.empty())
    expect_refused(ErrorCode::kUnsupported, {"CUDA", "use device_type cpu"}, ask_for_cuda);
  else
    EXPECT_NO_THROW(check_config(config_with(ask_for_cuda)));
}

TEST(Device, RanksThatAreNotThere) {
  expect_refused(ErrorCode::kInvalidArgument, {"tp is 0", "1 to 16"}, [](PipelineConfig& c) { c.tp = 0; });
  expect_refused(ErrorCode::kUnsupported, {"not supported: tp 2", "device_type is cpu", "use tp 1"},
                 [](PipelineConfig& c) { c.tp = 2, c.device_type = "cpu"; });
  expect_refused(ErrorCode::kInvalidArgument, {"communicator is mpi", "cuda-ipc, native, nccl or host"},
                 [](PipelineConfig& c) { c.communicator = "mpi"; });
  for (const char* name : {"", "cuda-ipc", "native", "nccl", "host"})
    EXPECT_NO_THROW(check_config(config_with([&](PipelineConfig& c) { c.communicator = name; })));
  const size_t count = cuda_status().devices.size();
  if (count < 16)
    expect_refused(ErrorCode::kUnsupported, {"not supported: tp 16", cat("use tp ", count == 0 ? 1 : count)},
                   [](PipelineConfig& c) { c.tp = 16; });
}

TEST(Device, KvDtypes) {
  EXPECT_EQ(kv_dtype("auto"), DType::kF16);
  EXPECT_EQ(kv_dtype("float16"), DType::kF16);
  EXPECT_EQ(kv_dtype("bfloat16"), DType::kBF16);
  EXPECT_EQ(kv_dtype("float32"), DType::kF32);
  const auto threads = std::make_shared<ThreadPool>(1);
  const auto cpu = make_cpu_kernels(threads);
  const auto dtype_with = [&](const Kernels& kernels, int policy) {
    PipelineConfig config;
    config.dtype = "bfloat16";
    config.quant_policy = policy;
    return kv_dtype(config, kernels);
  };
  EXPECT_EQ(dtype_with(*cpu, 0), DType::kBF16);
  EXPECT_EQ(dtype_with(*cpu, 4), DType::kU4);
  EXPECT_EQ(dtype_with(*cpu, 8), DType::kU8);
  if (cuda_status().devices.empty()) return;
  const auto cuda = make_cuda_kernels(threads, DType::kBF16);
  EXPECT_EQ(dtype_with(*cuda, 0), DType::kBF16);
  EXPECT_EQ(dtype_with(*cuda, 8), DType::kU8);
}

TEST(Device, CudaDtypes) {
  const SomeCheckpoint bf16({}, {{DType::kF32, 10}, {DType::kBF16, 100}}), f16({}, {{DType::kF16, 10}}),
      f32({}, {{DType::kF32, 10}}), gguf({}, {{DType::kQ4_K, 256}, {DType::kBF16, 32}}),
      said({{"torch_dtype", "bfloat16"}}, {{DType::kF32, 10}}),
      said_f32({{"dtype", "float32"}}, {{DType::kBF16, 10}});
  for (const CudaDevice& card : {kL4, kT4}) {
    const DType widest = card.major >= 8 ? DType::kBF16 : DType::kF16;
    EXPECT_EQ(cuda_dtype("auto", bf16, card), widest);
    EXPECT_EQ(cuda_dtype("auto", f16, card), DType::kF16);
    EXPECT_EQ(cuda_dtype("auto", f32, card), DType::kF16);
    EXPECT_EQ(cuda_dtype("auto", gguf, card), DType::kF16);
    EXPECT_EQ(cuda_dtype("auto", said, card), widest);
    EXPECT_EQ(cuda_dtype("auto", said_f32, card), DType::kF16);
    EXPECT_EQ(cuda_dtype("float32", bf16, card), DType::kF32);
    EXPECT_EQ(cuda_dtype("float16", bf16, card), DType::kF16);
  }
  EXPECT_EQ(cuda_dtype("bfloat16", f16, kL4), DType::kBF16);
}

// F80.
TEST(Device, CardsWithoutBf16) {
  const SomeCheckpoint bf16({}, {{DType::kBF16, 100}}), f16({}, {{DType::kF16, 100}});
  expect_error(ErrorCode::kUnsupported,
               {"dtype bfloat16", "Tesla T4", "compute capability 7.5", "dtype='float16'", "--dtype float16"},
               [&] { cuda_dtype("bfloat16", f16, kT4); });
  const auto logged = [](const std::string& dtype, const Checkpoint& checkpoint, const CudaDevice& card) {
    ::testing::internal::CaptureStderr();
    cuda_dtype(dtype, checkpoint, card);
    return ::testing::internal::GetCapturedStderr();
  };
  const CudaDevice named = {
      .name = "Quadro RTX 4000", .major = 7, .minor = 5};  // its warning has not come yet
  const std::string warning = logged("auto", bf16, named);
  for (const char* words : {"warning", "Quadro RTX 4000 has compute capability 7.5", "float16", "65504"})
    EXPECT_NE(warning.find(words), std::string::npos) << words << " in " << warning;
  EXPECT_EQ(std::ranges::count(warning, '\n'), 1) << warning;
  EXPECT_EQ(logged("float16", bf16, named) + logged("auto", f16, named) + logged("auto", bf16, kL4), "");
}

TEST(Device, TheCpuIsTakenWhereThereIsNoGpu) {
  EXPECT_FALSE(uses_cuda(config_with([](PipelineConfig& c) { c.device_type = "cpu"; })));
  EXPECT_EQ(uses_cuda(config_with([](PipelineConfig&) {})), !cuda_status().devices.empty());
}

TEST(Device, KvPool) {
  EngineConfig by_default, share, blocks;
  set_kv_pool(0, 1000, by_default);
  EXPECT_EQ(by_default.kv_memory_bytes, 0u);
  EXPECT_EQ(by_default.num_blocks, 0);
  set_kv_pool(0.5, 1000, share);
  EXPECT_EQ(share.kv_memory_bytes, 500u);
  EXPECT_EQ(share.num_blocks, 0);
  set_kv_pool(20, 1000, blocks);
  EXPECT_EQ(blocks.kv_memory_bytes, 0u);
  EXPECT_EQ(blocks.num_blocks, 20);
}

}  // namespace
}  // namespace lmdeploy
