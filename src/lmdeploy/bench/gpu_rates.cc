// Products and attention on the GPU by themselves, with the shapes of Llama-3-8B in bf16, as percent of the
// card's read bandwidth or of its rate of bf16 products.
//   gpu_rates [linear] [linear_in_4_bits] [linear_in_q4_0] [linear_in_q4_1] [linear_in_8_bits]
//             [linear_in_q8_0] [linear_in_q4_k] [linear_in_q6_k] [attention] [attention_in_8_bits]
//             [attention_in_4_bits] [sampling] [layers]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include "lmdeploy/bench/random_tensor.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/half.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/kernels/cuda/device_probe.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {
namespace {

constexpr int64_t kColdBytes = int64_t{300} << 20;  // several times a card's cache
constexpr int64_t kNumHeads = 32, kNumKvHeads = 8, kHeadDim = 128, kBlockLen = 64;

// Seconds of a call: the median of some runs of many calls, one after the other.
double seconds_of(const std::function<void(int64_t)>& call) {
  constexpr int64_t kRuns = 7;
  int64_t calls = 4;
  std::vector<double> times;
  for (int64_t run = -2; run < kRuns; ++run) {
    cuda::wait_for_device();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) call(i);
    cuda::wait_for_device();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
                           static_cast<double>(calls);
    if (run == -1) calls = std::clamp<int64_t>(static_cast<int64_t>(0.01 / seconds), 4, 400);
    if (run >= 0) times.push_back(seconds);
  }
  std::ranges::sort(times);
  return times[kRuns / 2];
}

class Rates {
 public:
  Rates()
      : kernels_(make_cuda_kernels(std::make_shared<ThreadPool>(1), DType::kBF16)),
        bandwidth_(cuda::measure_read_bandwidth()),
        product_rate_(cuda::measure_bf16_product()),
        numbers_(DType::kBF16, {8192, 4096}) {
    Rng rng(1);
    for (BF16& value : numbers_.span<BF16>()) value = to_bf16(static_cast<float>(2 * rng.uniform() - 1));
    std::printf("%s: read %.3f TB/s, bf16 product %.0f TFLOP/s\n", cuda_status().devices.front().name.c_str(),
                bandwidth_ / 1e12, product_rate_ / 1e12);
  }

  void linear(int64_t rows, int64_t cols, DType kind) {
    std::vector<std::unique_ptr<PackedWeight>> weights;
    const Tensor weight = random_tensor(kind, {rows, cols}, 0.02, /*seed=*/1);
    const ConstTensorView parts[] = {weight};
    for (int64_t bytes = 0; bytes < kColdBytes; bytes += static_cast<int64_t>(weights.back()->bytes()))
      weights.push_back(kernels_->pack_weight(parts));
    for (const int64_t tokens : {1, 8, 16, 32, 64, 128, 256, 2048}) {
      const Tensor x = kernels_->to_device(random(tokens, cols)),
                   out(DType::kBF16, {tokens, rows}, kernels_->allocator());
      const double seconds = seconds_of(
          [&](int64_t i) { kernels_->linear(out, x, *weights[static_cast<size_t>(i) % weights.size()]); });
      const auto bytes = static_cast<double>(weights.front()->bytes());
      const double ops = 2.0 * static_cast<double>(rows * cols * tokens);
      std::printf(
          "linear %lld x %lld in %s, %lld tokens: %.1f us, %.1f %% of bandwidth, %.1f %% of products\n",
          static_cast<long long>(rows), static_cast<long long>(cols), std::string(to_string(kind)).c_str(),
          static_cast<long long>(tokens), seconds * 1e6, 100 * bytes / seconds / bandwidth_,
          100 * ops / seconds / product_rate_);
    }
    std::fflush(stdout);
  }

  /// A token from each of `rows` rows of a vocabulary of Llama-3; logits are like a model's: most near 0, the
  /// best some 15 above.
  void sampling(const char* name, int64_t rows, const TokenDraw& draw) {
    constexpr int64_t kVocab = 128256;
    Tensor host(DType::kF32, {rows, kVocab});
    Rng rng(1);
    for (float& logit : host.span<float>()) {
      const double u = rng.uniform();
      logit = static_cast<float>(4 * (u - 0.5) + (u > 0.999 ? 12 * rng.uniform() : 0));
    }
    const Tensor logits = kernels_->to_device(std::move(host));
    std::vector<TokenDraw> draws(static_cast<size_t>(rows), draw);
    std::span<const DrawnToken> drawn;
    for (size_t i = 0; i < draws.size(); ++i) draws[i].row = static_cast<int32_t>(i);
    const double seconds = seconds_of([&](int64_t i) {
      for (TokenDraw& one : draws) one.uniform = random_uniform(1, static_cast<uint64_t>(i));
      kernels_->start_draws(logits, draws, {});
      drawn = kernels_->finish_draws();
    });
    const auto many = std::ranges::count(drawn, DrawnToken::Outcome::kTooMany, &DrawnToken::outcome);
    std::printf("sampling %s, %lld rows: %.1f us, %lld for the host\n", name, static_cast<long long>(rows),
                seconds * 1e6, static_cast<long long>(many));
    std::fflush(stdout);
  }

  /// Each sequence has `rows` of its `context` tokens in the step.
  void attention(int64_t batch, int64_t context, int64_t rows, DType kv_dtype,
                 int64_t num_kv_heads = kNumKvHeads) {
    const KvLayout layout = {.dtype = kv_dtype,
                             .num_layers = 1,
                             .num_kv_heads = num_kv_heads,
                             .head_dim = kHeadDim,
                             .block_len = kBlockLen};
    const int64_t blocks_each = (context + kBlockLen - 1) / kBlockLen;
    const int64_t bytes = batch * blocks_each * layout.block_bytes();
    const int64_t copies = std::max<int64_t>(1, (kColdBytes + bytes - 1) / bytes);
    const int64_t num_blocks = copies * batch * blocks_each;
    const Tensor memory = make_cache(num_blocks * layout.block_bytes());
    const KvCacheView cache = {.layout = layout, .data = memory.view().data(), .num_blocks = num_blocks};
    std::vector<int32_t> table(static_cast<size_t>(num_blocks)), start, len(static_cast<size_t>(batch));
    std::iota(table.rbegin(), table.rend(), 0);
    for (int64_t s = 0; s <= batch; ++s) start.push_back(static_cast<int32_t>(s * rows));
    std::ranges::fill(len, static_cast<int32_t>(context));
    const Tensor tables = indices(table, {copies * batch, blocks_each}),
                 query_start = indices(start, {batch + 1}), kv_len = indices(len, {batch});
    const Tensor q = kernels_->to_device(random(batch * rows, kNumHeads * kHeadDim)),
                 out(DType::kBF16, {batch * rows, kNumHeads * kHeadDim}, kernels_->allocator());
    const double seconds = seconds_of([&](int64_t i) {
      const ConstTensorView blocks = tables.view().slice_rows(i % copies * batch, batch);
      kernels_->attention(out, q, cache, {query_start, kv_len, blocks},
                          {.scale = 0.088f, .num_heads = kNumHeads});
    });
    const double seen =
        static_cast<double>(rows) * (static_cast<double>(context) - 0.5 * static_cast<double>(rows - 1));
    const double ops = 4.0 * static_cast<double>(batch * kNumHeads * kHeadDim) * seen;
    std::printf(
        "attention batch %lld, %lld of %lld tokens, %lld kv heads: %.1f us, %.1f %% of bandwidth, %.1f "
        "TFLOP/s\n",
        static_cast<long long>(batch), static_cast<long long>(rows), static_cast<long long>(context),
        static_cast<long long>(num_kv_heads), seconds * 1e6,
        100 * static_cast<double>(bytes) / seconds / bandwidth_, ops / seconds / 1e12);
    std::fflush(stdout);
  }

  const Kernels& kernels() const { return *kernels_; }
  // On the device, but for random().
  Tensor random(int64_t rows, int64_t cols) const {
    Tensor t(DType::kBF16, {rows, cols});
    const auto from = numbers_.span<BF16>();
    const auto to = t.span<BF16>();
    for (size_t i = 0; i < to.size(); ++i) to[i] = from[i % from.size()];
    return t;
  }
  Tensor indices(const std::vector<int32_t>& values, const Shape& shape) const {
    Tensor t(DType::kI32, shape);
    std::ranges::copy(values, t.span<int32_t>().begin());
    return kernels_->to_device(std::move(t));
  }
  // The same random numbers again and again.
  Tensor make_cache(int64_t bytes) const {
    Tensor memory(DType::kU8, {bytes}, kernels_->allocator());
    const auto most = static_cast<int64_t>(numbers_.bytes());
    for (int64_t at = 0; at < bytes; at += most) {
      const int64_t count = std::min(most, bytes - at);
      kernels_->copy_from_host(TensorView(memory.view().data() + at, DType::kU8, {count}),
                               ConstTensorView(numbers_.view().data(), DType::kU8, {count}));
    }
    return memory;
  }

 private:
  const std::unique_ptr<Kernels> kernels_;
  const double bandwidth_, product_rate_;  // bytes and operations a second
  Tensor numbers_;
};

/// Layers of Llama-3-8B's shape that decode a token of each sequence, op by op.
class DecodeLayers {
 public:
  static constexpr int64_t kLayers = 8;
  static constexpr const char* kOps[] = {"add_norm", "linear qkv", "rope_kv_write", "attention",
                                         "linear o", "linear_glu", "linear down"};

  DecodeLayers(const Rates& rates, int64_t batch, int64_t context, DType kind)
      : kernels_(rates.kernels()),
        batch_(batch),
        blocks_each_((context + kBlockLen - 1) / kBlockLen),
        memory_(rates.make_cache(batch * blocks_each_ * kLayout.block_bytes())),
        table_(rates.indices(rising(batch * blocks_each_), {batch, blocks_each_})),
        query_start_(rates.indices(rising(batch + 1), {batch + 1})),
        kv_len_(
            rates.indices(std::vector(static_cast<size_t>(batch), static_cast<int32_t>(context)), {batch})),
        slots_(last_slots(context)),
        norm_(ones()),
        x_(kernels_.to_device(rates.random(batch, kHidden))),
        residual_(kernels_.to_device(rates.random(batch, kHidden))),
        rope_(kernels_.to_device(rates.random(batch, kHeadDim))) {
    for (const auto& [rows, cols] :
         {std::pair(kQkv, kHidden), {kHidden, kHidden}, {2 * kInner, kHidden}, {kHidden, kInner}}) {
      const Tensor weight = random_tensor(kind, {rows, cols}, 0.02, /*seed=*/1);
      const ConstTensorView parts[] = {weight};
      for (int64_t i = 0; i < kLayers; ++i) weights_.push_back(kernels_.pack_weight(parts));
    }
  }

  /// Seconds of a layer in a recording of all, without one op.
  double seconds_without(std::string_view op) const {
    run(op);  // scratch memory grows
    const std::unique_ptr<Recording> recording = kernels_.record([&] { run(op); });
    return seconds_of([&](int64_t) { recording->run(); }) / kLayers;
  }

 private:
  static constexpr int64_t kHidden = 4096, kInner = 14336, kKv = kNumKvHeads * kHeadDim,
                           kQkv = kNumHeads * kHeadDim + 2 * kKv;
  static constexpr KvLayout kLayout = {.dtype = DType::kBF16,
                                       .num_layers = kLayers,
                                       .num_kv_heads = kNumKvHeads,
                                       .head_dim = kHeadDim,
                                       .block_len = kBlockLen};

  static std::vector<int32_t> rising(int64_t count) {
    std::vector<int32_t> numbers(static_cast<size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }
  Tensor last_slots(int64_t context) const {
    Tensor slots(DType::kI64, {batch_});
    for (int64_t s = 0; s < batch_; ++s)
      slots.span<int64_t>()[static_cast<size_t>(s)] = s * blocks_each_ * kBlockLen + context - 1;
    return kernels_.to_device(std::move(slots));
  }
  Tensor ones() const {
    Tensor t(DType::kF32, {kHidden});
    std::ranges::fill(t.span<float>(), 1.0f);
    return kernels_.to_device(std::move(t));
  }
  Tensor room(int64_t cols) const { return Tensor(DType::kBF16, {batch_, cols}, kernels_.allocator()); }

  void run(std::string_view left_out) const {
    const KvCacheView cache = {
        .layout = kLayout, .data = memory_.view().data(), .num_blocks = batch_ * blocks_each_};
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const auto weight = [&](int64_t which) -> const PackedWeight& {
        return *weights_[static_cast<size_t>(which * kLayers + layer)];
      };
      const auto op = [&](std::string_view name, const auto& call) {
        if (name != left_out) call();
      };
      op("add_norm", [&] { kernels_.add_norm(normed_, residual_, x_, norm_, {}); });
      op("linear qkv", [&] { kernels_.linear(qkv_, normed_, weight(0)); });
      op("rope_kv_write", [&] {
        kernels_.rope_kv_write(qkv_.view().slice_cols(0, kQkv - kKv), rope_, {.head_dim = kHeadDim}, cache,
                               layer, qkv_.view().slice_cols(kQkv - kKv, kKv), slots_);
      });
      op("attention", [&] {
        kernels_.attention(attended_, qkv_.view().slice_cols(0, kHidden), cache,
                           {query_start_, kv_len_, table_},
                           {.scale = 0.088f, .layer = layer, .num_heads = kNumHeads});
      });
      op("linear o", [&] { kernels_.linear(x_, attended_, weight(1)); });
      op("add_norm", [&] { kernels_.add_norm(normed_, residual_, x_, norm_, {}); });
      op("linear_glu",
         [&] { kernels_.linear_glu(inner_, up_, normed_, weight(2), std::nullopt, Activation::kSilu); });
      op("linear down", [&] { kernels_.linear(x_, inner_, weight(3)); });
    }
  }

  const Kernels& kernels_;
  const int64_t batch_, blocks_each_;
  const Tensor memory_, table_, query_start_, kv_len_, slots_, norm_, x_, residual_, rope_;
  const Tensor normed_ = room(kHidden), qkv_ = room(kQkv), attended_ = room(kHidden), up_ = room(2 * kInner),
               inner_ = room(kInner);
  std::vector<std::unique_ptr<PackedWeight>> weights_;
};

void print_layers(const Rates& rates, int64_t batch, int64_t context, DType kind) {
  const DecodeLayers layers(rates, batch, context, kind);
  const auto print = [&](const std::string& what, double seconds, double less) {
    std::printf("layers in %s, batch %lld, %lld tokens, %s: %.2f us a layer, %.2f less\n",
                std::string(to_string(kind)).c_str(), static_cast<long long>(batch),
                static_cast<long long>(context), what.c_str(), seconds * 1e6, less * 1e6);
  };
  const double whole = layers.seconds_without("");
  print("whole", whole, 0);
  for (const char* op : DecodeLayers::kOps) {
    const double seconds = layers.seconds_without(op);
    print(cat("without ", op), seconds, whole - seconds);
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace lmdeploy

int main(int argc, char** argv) try {
  const auto wanted = [&](std::string_view part) {
    return argc < 2 || std::find(argv + 1, argv + argc, part) != argv + argc;
  };
  lmdeploy::Rates rates;
  constexpr std::pair<const char*, lmdeploy::DType> kWeights[] = {
      {"linear", lmdeploy::DType::kBF16},
      {"linear_in_4_bits", lmdeploy::DType::kU4G128},
      {"linear_in_q4_0", lmdeploy::DType::kQ4_0},
      {"linear_in_q4_1", lmdeploy::DType::kQ4_1},
      {"linear_in_8_bits", lmdeploy::DType::kI8G64},
      {"linear_in_q8_0", lmdeploy::DType::kQ8_0},
      {"linear_in_fp8", lmdeploy::DType::kF8G64},
      {"linear_in_q4_k", lmdeploy::DType::kQ4_K},
      {"linear_in_q6_k", lmdeploy::DType::kQ6_K}};
  for (const auto& [part, kind] : kWeights) {
    if (!wanted(part)) continue;
    rates.linear(6144, 4096, kind);
    rates.linear(4096, 4096, kind);
    rates.linear(28672, 4096, kind);
    rates.linear(4096, 14336, kind);
    if (kind == lmdeploy::DType::kBF16) rates.linear(128256, 4096, kind);
  }
  constexpr std::pair<const char*, lmdeploy::DType> kCaches[] = {
      {"attention", lmdeploy::DType::kBF16},
      {"attention_in_8_bits", lmdeploy::DType::kU8},
      {"attention_in_4_bits", lmdeploy::DType::kU4}};
  for (const auto& [part, kv_dtype] : kCaches) {
    if (!wanted(part)) continue;
    std::printf("%s\n", part);
    rates.attention(1, 128, 1, kv_dtype);
    rates.attention(1, 2048, 1, kv_dtype);
    rates.attention(1, 32768, 1, kv_dtype);
    rates.attention(16, 1024, 1, kv_dtype);
    rates.attention(40, 1024, 1, kv_dtype);
    rates.attention(64, 1024, 1, kv_dtype);
    rates.attention(256, 1024, 1, kv_dtype);
    rates.attention(64, 1024, 1, kv_dtype, lmdeploy::kNumHeads);  // no heads share keys
    rates.attention(256, 384, 1, kv_dtype, lmdeploy::kNumHeads);
    rates.attention(1, 2048, 2048, kv_dtype);
    rates.attention(1, 8192, 8192, kv_dtype);
    rates.attention(16, 256, 256, kv_dtype, lmdeploy::kNumHeads);
    rates.attention(1, 8192, 512, kv_dtype);
    rates.attention(8, 512, 512, kv_dtype);
  }
  if (wanted("layers"))
    for (const auto kind : {lmdeploy::DType::kBF16, lmdeploy::DType::kU4G128, lmdeploy::DType::kF8G64})
      for (const auto& [batch, context] : {std::pair(1, 128), {1, 2048}, {16, 1024}, {64, 1024}, {256, 1024}})
        lmdeploy::print_layers(rates, batch, context, kind);
  if (wanted("sampling"))
    for (const int64_t rows : {1, 64, 256}) {
      rates.sampling("greedy", rows, {});
      rates.sampling("temperature", rows, {.temperature = 1});
      rates.sampling("top_k 40", rows, {.temperature = 0.7f, .top_k = 40});
      rates.sampling("top_p 0.9", rows, {.temperature = 0.7f, .top_p = 0.9f});
      rates.sampling("top_k 40, top_p 0.9", rows, {.temperature = 0.7f, .top_k = 40, .top_p = 0.9f});
      rates.sampling("min_p 0.05", rows, {.temperature = 0.7f, .min_p = 0.05f});
    }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
