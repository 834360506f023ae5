// What the op tests share: random tensors, padded views, and the one comparison. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/half.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/core/tensor.h"
#include "lmdeploy/kernels/device_mirror.h"
#include "lmdeploy/kernels/kernels.h"
#include "lmdeploy/kernels/quant_block.h"

namespace lmdeploy {

constexpr double kF32Epsilon = 0x1p-24;

/// A back end under test: the CPU's instruction sets, in f32 and with rounded activations, and CUDA by its
/// activations.
enum class Backend {
  kPortable,
  kAvx2,
  kAvx512,
  kAvx2Rounded,
  kAvx2VnniRounded,
  kAvx512Rounded,
  kAvx512VnniRounded,
  kAvx512BF16Rounded,
  kCudaF32,
  kCudaF16,
  kCudaBF16
};
inline constexpr std::array kCpuBackends = {Backend::kPortable, Backend::kAvx2, Backend::kAvx512};
/// These differ from the others in products with weights of integers and, the last one, of bf16.
inline constexpr std::array kRoundedBackends = {Backend::kAvx2Rounded, Backend::kAvx2VnniRounded,
                                                Backend::kAvx512Rounded, Backend::kAvx512VnniRounded,
                                                Backend::kAvx512BF16Rounded};
inline constexpr std::array kCudaBackends = {Backend::kCudaF32, Backend::kCudaF16, Backend::kCudaBF16};
inline constexpr size_t kNumBackends = kCpuBackends.size() + kRoundedBackends.size() + kCudaBackends.size();
inline bool is_cuda(Backend backend) { return backend >= Backend::kCudaF32; }
/// Of a CPU back end.
inline CpuOptions options_of(Backend backend) {
  constexpr std::array kIsas = {CpuIsa::kPortable, CpuIsa::kAvx2,   CpuIsa::kAvx512,     CpuIsa::kAvx2,
                                CpuIsa::kAvx2Vnni, CpuIsa::kAvx512, CpuIsa::kAvx512Vnni, CpuIsa::kAvx512BF16};
  return {.isa = kIsas[static_cast<size_t>(backend)],
          .rounded_activations = backend >= Backend::kAvx2Rounded};
}
/// Of its activations.
inline DType dtype_of(Backend backend) {
  if (backend == Backend::kCudaF16) return DType::kF16;
  return backend == Backend::kCudaBF16 ? DType::kBF16 : DType::kF32;
}
inline std::string to_string(Backend backend) {
  if (is_cuda(backend)) return cat("cuda_", dtype_of(backend));
  const CpuOptions options = options_of(backend);
  return cat(options.isa, options.rounded_activations ? "_rounded" : "");
}
/// Those of this build, whether the machine can run them or not.
inline std::vector<Backend> all_backends() {
  std::vector<Backend> all(kCpuBackends.begin(), kCpuBackends.end());
  if (cuda_toolkit_version() > 0) all.insert(all.end(), kCudaBackends.begin(), kCudaBackends.end());
  return all;
}
/// For products with weights.
inline std::vector<Backend> linear_backends() {
  std::vector<Backend> all = all_backends();
  all.insert(all.end(), kRoundedBackends.begin(), kRoundedBackends.end());
  return all;
}
/// Why the back end does not run here; "" when it does.
inline std::string problem_of(Backend backend) {
  static const CudaStatus cuda = cuda_status();
  if (is_cuda(backend)) return cuda.problem;
  const CpuIsa isa = options_of(backend).isa;
  return cpu_isa_available(isa) ? "" : cat("this processor lacks ", isa);
}

inline constexpr std::array kWeightKinds = {DType::kF32,    DType::kF16,   DType::kBF16,  DType::kQ4_0,
                                            DType::kQ4_1,   DType::kQ5_0,  DType::kQ5_1,  DType::kQ8_0,
                                            DType::kQ4_K,   DType::kQ5_K,  DType::kQ6_K,  DType::kU4G32,
                                            DType::kU4G128, DType::kU5G32, DType::kI8G64, DType::kF8G64};

/// More threads than this machine may have: pieces must come out the same whoever runs them.
inline std::shared_ptr<ThreadPool> test_threads() {
  static const auto pool = std::make_shared<ThreadPool>(3);
  return pool;
}
inline const Kernels& ref_kernels() {
  static const std::unique_ptr<Kernels> kernels = make_ref_kernels(test_threads());
  return *kernels;
}
/// Kept from test to test, so that scratch of one shape is met by the next.
inline const Kernels& kernels_of(Backend backend) {
  static std::array<std::unique_ptr<Kernels>, kNumBackends> kernels;
  auto& entry = kernels[static_cast<size_t>(backend)];
  if (entry) return *entry;
  if (is_cuda(backend))
    entry = std::make_unique<DeviceMirror>(make_cuda_kernels(test_threads(), dtype_of(backend)));
  else
    entry = make_cpu_kernels(test_threads(), options_of(backend));
  return *entry;
}

/// The same where a row's bits do not depend on the rows beside it: the CPU's always.
inline const Kernels& batch_invariant_kernels_of(Backend backend) {
  if (!is_cuda(backend)) return kernels_of(backend);
  static std::array<std::unique_ptr<Kernels>, kNumBackends> kernels;
  auto& entry = kernels[static_cast<size_t>(backend)];
  if (!entry)
    entry = std::make_unique<DeviceMirror>(
        make_cuda_kernels(test_threads(), dtype_of(backend), {.batch_invariant = true}));
  return *entry;
}

/// What storing a result of size `want` in a 16-bit type costs on top of f32: below the normal numbers, half
/// a step of 2^-24 (f16) or 2^-133 (bf16).
inline double store_error(Backend backend, double want) {
  const DType dtype = dtype_of(backend);
  if (dtype == DType::kF32) return 0;
  return std::abs(want) * epsilon(dtype) + (dtype == DType::kF16 ? 0x1p-25 : 0x1p-134);
}

enum class Fill { kOrdinary, kTiny, kHuge, kEqual };
inline std::string_view to_string(Fill fill) {
  constexpr std::array<std::string_view, 4> kNames = {"ordinary", "tiny", "huge", "equal"};
  return kNames[static_cast<size_t>(fill)];
}

/// Tensor memory with `padding` spare elements after each row, which hold NaN.
class TestTensor {
 public:
  TestTensor(DType dtype, int64_t rows, int64_t cols, int64_t padding = 0)
      : storage_(dtype, {rows, cols + padding}), cols_(cols) {
    if (!is_float(dtype)) return;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols + padding; ++c) storage_.view().set(r, c, std::nan(""));
  }
  TensorView view() const { return storage_.view().slice_cols(0, cols_); }
  operator TensorView() const { return view(); }       // NOLINT: implicit by intent
  operator ConstTensorView() const { return view(); }  // NOLINT
  double at(int64_t row, int64_t col) const { return view().at(row, col); }

  void expect_padding_untouched() const {
    for (int64_t r = 0; r < view().rows(); ++r)
      for (int64_t c = cols_; c < storage_.dim(1); ++c)
        ASSERT_TRUE(std::isnan(storage_.view().at(r, c)))
            << "row " << r << " was written past its end at " << c;
  }

 private:
  Tensor storage_;
  int64_t cols_;
};

inline double random_value(Rng& rng, Fill fill) {
  const double unit = 2 * rng.uniform() - 1;
  switch (fill) {
    case Fill::kTiny:
      return unit * 1e-20;
    case Fill::kHuge:
      return unit * 1e15;
    case Fill::kEqual:
      return 0.75;
    case Fill::kOrdinary:
      break;
  }
  return unit * 3;
}

/// Values are rounded to the dtype: references must read the tensor, not the numbers it was made of. Tiny and
/// huge are so for the range of f16 there.
inline TestTensor random_tensor(Rng& rng, DType dtype, int64_t rows, int64_t cols,
                                Fill fill = Fill::kOrdinary, int64_t padding = 0) {
  const double range = dtype != DType::kF16  ? 1
                       : fill == Fill::kTiny ? 1e15
                       : fill == Fill::kHuge ? 1e-13
                                             : 1;
  TestTensor t(dtype, rows, cols, padding);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) t.view().set(r, c, range * random_value(rng, fill));
  return t;
}

inline Tensor index_tensor(DType dtype, const std::vector<int64_t>& values) {
  Tensor t(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kI64) {
      t.span<int64_t>()[i] = values[i];
    } else {
      t.span<int32_t>()[i] = static_cast<int32_t>(values[i]);
    }
  }
  return t;
}

/// Gives a block of random integers a scale and a zero.
inline void set_integer_group(Rng& rng, DType dtype, uint8_t* block) {
  const int half = dtype == DType::kI8G64 ? 128 : dtype == DType::kU5G32 ? 16 : 8;  // of the range
  // As files have it, in 16 bits: a back end may keep no more.
  const float scale =
      to_float(to_f16(static_cast<float>((0.5 + rng.uniform()) / half * (rng.below(8) == 0 ? -1 : 1))));
  const auto zero = static_cast<int32_t>(rng.below(static_cast<uint64_t>(half) + 1)) +
                    (dtype == DType::kI8G64 ? -64 : half / 2);
  write_block_scales(scale, zero, reinterpret_cast<std::byte*>(block));
  if (dtype == DType::kU5G32)
    for (size_t i = 0; i < 32; ++i) block[8 + i] &= 31;
}

/// Gives a block of random codes a scale, and a number in place of each NaN.
inline void set_code_group(Rng& rng, uint8_t* block) {
  const auto scale = static_cast<float>((0.5 + rng.uniform()) / 448 * (rng.below(8) == 0 ? -1 : 1));
  std::memcpy(block, &scale, sizeof(scale));
  for (size_t i = 4; i < 68; ++i)
    if ((block[i] & 0x7f) == 0x7f) block[i] &= 0x80;
}

/// Random weights [rows, cols] of any kind. Blocks are random bits with scales that make weights of about 1.
inline Tensor random_weight(Rng& rng, DType dtype, int64_t rows, int64_t cols,
                            std::optional<uint8_t> all_bits = std::nullopt) {
  Tensor t(dtype, {rows, cols});
  if (!is_quantized(dtype)) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) t.view().set(r, c, 2 * rng.uniform() - 1);
    return t;
  }
  for (size_t i = 0; i < t.bytes(); ++i)
    t.span<uint8_t>()[i] = all_bits.value_or(static_cast<uint8_t>(rng.bits()));
  const auto step = static_cast<size_t>(block_bytes(dtype));
  if (is_integer_group(dtype)) {
    for (size_t at = 0; at < t.bytes(); at += step)
      set_integer_group(rng, dtype, t.span<uint8_t>().data() + at);
    return t;
  }
  if (dtype == DType::kF8G64) {
    for (size_t at = 0; at < t.bytes(); at += step) set_code_group(rng, t.span<uint8_t>().data() + at);
    return t;
  }
  const bool is_k = block_size(dtype) == 256;
  const bool has_min =
      dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ4_K || dtype == DType::kQ5_K;
  const size_t d_at = dtype == DType::kQ6_K ? 208 : 0;
  const auto put = [](uint8_t* p, double value) {
    const F16 half = to_f16(static_cast<float>(value));
    std::memcpy(p, &half, sizeof(half));
  };
  for (size_t at = 0; at < t.bytes(); at += step) {
    uint8_t* block = t.span<uint8_t>().data() + at;
    const double d = (0.5 + rng.uniform()) / (is_k ? 512 : dtype == DType::kQ8_0 ? 128 : 16);
    put(block + d_at, rng.below(8) == 0 ? -d : d);
    if (has_min) put(block + 2, is_k ? d * 8 : -d * 8);
  }
  return t;
}

inline std::unique_ptr<PackedWeight> pack(const Kernels& kernels, const Tensor& weight,
                                          std::span<const int32_t> column_order = {}) {
  const ConstTensorView parts[] = {weight};
  return kernels.pack_weight(parts, column_order);
}

inline std::vector<int32_t> random_order(Rng& rng, int64_t count) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  return order;
}
/// to[t, k] = from[t, order[k]], or from[t, k] where there is none.
inline void order_columns(TensorView to, ConstTensorView from, std::span<const int32_t> order) {
  for (int64_t t = 0; t < from.rows(); ++t)
    for (int64_t k = 0; k < from.cols(); ++k)
      to.set(t, k, from.at(t, order.empty() ? k : order[static_cast<size_t>(k)]));
}

/// What the kernel adds up in place of |weight|: scale * integer and min apart, whose sum is the weight. Both
/// are at most twice the largest weight of their group of 32 in the data of random_weight().
inline Tensor magnitudes(const Tensor& weight) {
  Tensor out(DType::kF32, weight.shape());
  const int64_t cols = weight.dim(1);
  const float parts = is_quantized(weight.dtype()) ? 4 : 1;
  for (int64_t r = 0; r < weight.dim(0); ++r) {
    float* row = out.view().row<float>(r);
    dequantize(weight.dtype(), ConstTensorView(weight).row_data(r), row, cols);
    const int64_t group = is_quantized(weight.dtype()) ? 32 : 1;
    for (int64_t k = 0; k < cols; k += group) {
      float largest = 0;
      for (int64_t i = k; i < k + group; ++i) largest = std::max(largest, std::abs(row[i]));
      std::fill(row + k, row + k + group, parts * largest);
    }
  }
  return out;
}

inline TestTensor absolute(ConstTensorView x) {
  TestTensor out(DType::kF64, x.rows(), x.cols());
  for (int64_t t = 0; t < x.rows(); ++t)
    for (int64_t k = 0; k < x.cols(); ++k) out.view().set(t, k, std::abs(x.at(t, k)));
  return out;
}

/// Of one output of linear(), `total` being the sum of absolute(x) times magnitudes(): each sum of n products
/// rounds at most twice a term (the portable multiply-add); sqrt(n) rule: Higham 2002, ch. 4. The bias is at
/// most 3.
inline double linear_bound(int64_t cols, double total, double want) {
  return (total * (2 * std::sqrt(static_cast<double>(cols)) + 4) + std::abs(want) + 3) * kF32Epsilon;
}

/// |got - want| <= bound(row, col, want) everywhere; equal infinities and two NaNs are equal. Prints the
/// worst element by error / bound.
template <typename Bound>
void expect_close(ConstTensorView got, ConstTensorView want, const Bound& bound) {
  ASSERT_EQ(to_string(got.shape()), to_string(want.shape()));
  int64_t failed = 0, worst_row = 0, worst_col = 0;
  double worst = 0;
  for (int64_t r = 0; r < want.rows(); ++r) {
    for (int64_t c = 0; c < want.cols(); ++c) {
      const double w = want.at(r, c);
      const double g = got.at(r, c);
      if (g == w || (std::isnan(g) && std::isnan(w))) continue;
      const double limit = bound(r, c, w);
      const double error = std::abs(g - w);
      const double ratio =
          std::isfinite(error) ? error / std::max(limit, 1e-300) : std::numeric_limits<double>::infinity();
      if (!(error <= limit)) ++failed;
      if (ratio > worst) worst = ratio, worst_row = r, worst_col = c;
    }
  }
  EXPECT_EQ(failed, 0) << failed << " of " << want.rows() * want.cols() << " elements are off; worst at ["
                       << worst_row << ", " << worst_col << "]: got " << got.at(worst_row, worst_col)
                       << ", want " << want.at(worst_row, worst_col) << ", error " << worst
                       << " times the bound";
}

/// Same bits. NaNs must agree too.
inline void expect_bit_equal(ConstTensorView got, ConstTensorView want) {
  ASSERT_EQ(to_string(got.shape()), to_string(want.shape()));
  ASSERT_EQ(got.dtype(), want.dtype());
  const auto bytes = static_cast<size_t>(row_bytes(want.dtype(), want.cols()));
  for (int64_t r = 0; r < want.rows(); ++r) {
    if (std::memcmp(got.row_data(r), want.row_data(r), bytes) == 0) continue;
    int64_t c = 0;
    const int64_t step = block_bytes(want.dtype());
    while (std::memcmp(got.row_data(r) + c * step, want.row_data(r) + c * step, static_cast<size_t>(step)) ==
           0)
      ++c;
    FAIL() << "[" << r << ", " << c << "] differs: got " << got.at(r, c) << ", want " << want.at(r, c);
  }
}

/// `call` throws Error(kInvalidArgument) whose message holds `text`.
template <typename Call>
void expect_invalid(const Call& call, const std::string& text) {
  try {
    call();
    ADD_FAILURE() << "no error; expected one with \"" << text << "\"";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

}  // namespace lmdeploy

/// Skips a test aloud where the back end does not run.
#define LMD_REQUIRE_BACKEND(backend)                                                         \
  if (const std::string lmd_problem = ::lmdeploy::problem_of(backend); !lmd_problem.empty()) \
  GTEST_SKIP() << lmd_problem

/// The same where the back end does not take a KV cache of that dtype.
#define LMD_REQUIRE_CACHE(backend, dtype)                                                               \
  if (const ::lmdeploy::Kernels& lmd_kernels = kernels_of(backend); !lmd_kernels.takes_kv_dtype(dtype)) \
  GTEST_SKIP() << lmd_kernels.name() << " takes no KV cache in " << ::lmdeploy::to_string(dtype)
