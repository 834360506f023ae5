// The CUDA back end: f16, bf16 or f32 activations, sums in f32, one stream.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "lmdeploy/kernels/cuda/blas.h"
#include "lmdeploy/kernels/cuda/device.h"
#include "lmdeploy/kernels/cuda/upload_ring.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy::cuda {

/// A device's limits, for the choice of kernels.
struct DeviceLimits {
  DeviceCode code;
  int num_sms = 0;
  int shared_bytes = 0;  // that a block can have
};

/// Counters for ops whose last block of threads to arrive finishes a tile; 0 between ops.
constexpr int kArrivals = 8192;

/// Of start_draws(), in host memory that the device reads and writes.
struct DrawSpace {
  Buffer draws, edits, drawn;
  size_t count = 0;
  cudaEvent_t done = nullptr;
};

struct WeightPart;
struct ExpertWeights;

class CudaKernels final : public Kernels {
 public:
  CudaKernels(std::shared_ptr<ThreadPool> threads, DType activation_dtype, const CudaOptions& options);
  ~CudaKernels() override;

  std::string name() const override;
  Allocator& allocator() const override { return device_allocator(options_.device); }
  DType activation_dtype() const override { return dtype_; }
  bool takes_kv_dtype(DType dtype) const override {
    return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kU8 ||
           dtype == DType::kU4;
  }
  ThreadPool& threads() const override { return *threads_; }
  bool has_own_memory() const override { return true; }
  bool draws_tokens() const override { return true; }
  size_t available_memory() const override;
  std::unique_ptr<Recording> record(const std::function<void()>& ops) const override;
  int device() const { return options_.device; }
  cudaStream_t stream() const { return stream_; }
  /// Rises when memory moves that ops use while they run.
  int64_t scratch_version() const {
    return scratch_.version() + ordered_x_.version() + recordings_forgotten_;
  }
  /// Recordings made so far run no more. While none runs.
  void forget_recordings() const { ++recordings_forgotten_; }

 private:
  void do_start_draws(TensorView logits, std::span<const TokenDraw> draws,
                      std::span<const LogitEdit> edits) const override;
  std::span<const DrawnToken> do_finish_draws() const override;
  void do_take_drawn(TensorView ids, ConstTensorView draws) const override;
  std::unique_ptr<PackedWeight> do_pack_weight(std::span<const ConstTensorView> parts, int64_t rows,
                                               std::span<const int32_t> column_order) const override;
  void do_embedding(TensorView out, ConstTensorView ids, const PackedWeight& table) const override;
  void do_linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
                 std::optional<ConstTensorView> bias) const override;
  void do_linear_glu(TensorView out, TensorView up, ConstTensorView x, const PackedWeight& weight,
                     std::optional<ConstTensorView> bias, Activation activation) const override;
  void do_norm(TensorView out, ConstTensorView x, ConstTensorView weight,
               const NormOptions& options) const override;
  void do_add_norm(TensorView out, TensorView residual, ConstTensorView x, ConstTensorView weight,
                   const NormOptions& options) const override;
  void do_rope_table(TensorView table, ConstTensorView positions, ConstTensorView inv_freq,
                     ConstTensorView scale, ConstTensorView table_idx) const override;
  void do_rope(TensorView x, ConstTensorView table, RopeOptions options) const override;
  void do_rope_kv_write(TensorView x, ConstTensorView table, RopeOptions options, const KvCacheView& cache,
                        int64_t layer, ConstTensorView v, ConstTensorView slots) const override;
  void do_kv_write(const KvCacheView& cache, int64_t layer, ConstTensorView k, ConstTensorView v,
                   ConstTensorView slots) const override;
  void do_attention(TensorView out, ConstTensorView q, const KvCacheView& cache, const AttentionBatch& batch,
                    const AttentionOptions& options) const override;
  void do_glu(TensorView out, ConstTensorView x, Activation activation) const override;
  void do_clamped_glu(TensorView out, ConstTensorView x, float limit) const override;
  void do_activate(TensorView out, ConstTensorView x, Activation activation) const override;
  void do_add(TensorView out, ConstTensorView a, ConstTensorView b) const override;
  void do_scale(TensorView x, float factor) const override;
  void do_scale_rows(TensorView x, ConstTensorView factors) const override;
  void do_gate_rows(TensorView x, ConstTensorView gate) const override;
  void do_clamp(TensorView x, float limit) const override;
  void do_soft_cap(TensorView x, float cap) const override;
  void do_route(TensorView ids, TensorView weights, ConstTensorView logits,
                std::optional<ConstTensorView> correction, const RouteOptions& options) const override;
  void do_sort_by_expert(TensorView expert_start, TensorView row_tokens, TensorView pair_rows,
                         ConstTensorView ids) const override;
  void do_expert_linear(TensorView out, ConstTensorView x, std::span<const PackedWeight* const> experts,
                        ConstTensorView expert_start, std::optional<ConstTensorView> bias) const override;
  void do_combine_experts(TensorView out, ConstTensorView x, ConstTensorView weights,
                          ConstTensorView pair_rows) const override;
  void do_copy(TensorView out, ConstTensorView x) const override;
  void do_gather_rows(TensorView out, ConstTensorView x, ConstTensorView rows) const override;

  void fill_part(const WeightPart& part, int64_t first, ConstTensorView rows) const;
  void rope_write_codes(TensorView x, ConstTensorView table, const KvCacheView& cache, int64_t layer,
                        ConstTensorView v, ConstTensorView slots) const;
  void write_codes(const KvCacheView& cache, int64_t layer, ConstTensorView k, ConstTensorView v,
                   ConstTensorView slots) const;

  /// x for a product with the weight: itself, or a copy whose columns are in the weight's order.
  ConstTensorView in_column_order(ConstTensorView x, const PackedWeight& weight) const;
  /// The same of rows of experts, each in its own order.
  ConstTensorView in_column_order(ConstTensorView x, std::span<const PackedWeight* const> experts,
                                  ConstTensorView expert_start) const;

  // Ways of linear(); false, and nothing done, where they do not suit.
  bool multiply_few(TensorView out, ConstTensorView x, const WeightPart& part, const float* bias,
                    std::optional<Activation> glu) const;
  bool multiply_experts(TensorView out, ConstTensorView x, const WeightPart& part,
                        const ExpertWeights& experts) const;
  bool multiply_by_blas(TensorView out, ConstTensorView x, const WeightPart& part, const float* bias) const;

  Allocator& host_memory(size_t bytes) const override {
    constexpr size_t kLarge = size_t{64} << 10;
    return bytes >= kLarge ? pinned_allocator() : host_allocator();
  }
  void do_upload(std::byte* device, const std::byte* host, size_t bytes) const override;
  void do_download(std::byte* host, const std::byte* device, size_t bytes) const override;

  const std::shared_ptr<ThreadPool> threads_;
  const DType dtype_;
  const CudaOptions options_;
  cudaStream_t stream_ = nullptr;
  DeviceLimits device_;
  mutable Blas blas_;
  mutable Scratch scratch_;
  mutable Scratch ordered_x_;
  mutable int64_t recordings_forgotten_ = 0;
  Buffer arrivals_;  // counters of blocks that share a tile, 0 between ops
  mutable DrawSpace draw_space_;
  mutable UploadRing uploads_;
};

}  // namespace lmdeploy::cuda
