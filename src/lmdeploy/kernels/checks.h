// Shape and dtype checks of every op: one clear Error(kInvalidArgument) that names the op and the tensor.
// They read no element, so that they hold for device memory too; the *_values checks read host memory and are
// called by the back ends that live there.
#pragma once

#include <span>

#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy::checks {

void embedding(const Kernels& kernels, ConstTensorView out, ConstTensorView ids, const PackedWeight& table);
void linear(const Kernels& kernels, ConstTensorView out, ConstTensorView x, const PackedWeight& weight,
            const std::optional<ConstTensorView>& bias);
void rms_norm(const Kernels& kernels, ConstTensorView out, ConstTensorView x, ConstTensorView weight);
void add_rms_norm(const Kernels& kernels, ConstTensorView out, ConstTensorView residual, ConstTensorView x,
                  ConstTensorView weight);
void rope_table(const Kernels& kernels, ConstTensorView table, ConstTensorView positions,
                ConstTensorView inv_freq, ConstTensorView scale, ConstTensorView table_idx);
void rope(const Kernels& kernels, ConstTensorView x, ConstTensorView table, const RopeOptions& options);
void kv_write(const Kernels& kernels, const KvCacheView& cache, int64_t layer, ConstTensorView k,
              ConstTensorView v, ConstTensorView slots);
void attention(const Kernels& kernels, ConstTensorView out, ConstTensorView q, const KvCacheView& cache,
               const AttentionBatch& batch, const AttentionOptions& options);
void silu_mul(const Kernels& kernels, ConstTensorView out, ConstTensorView x);
void add(const Kernels& kernels, ConstTensorView out, ConstTensorView a, ConstTensorView b);
void gather_rows(const Kernels& kernels, ConstTensorView out, ConstTensorView x, ConstTensorView rows);

/// The parts of one packed weight: at least one, each [rows, cols] of float or quantised kind, equal cols
/// that every part's blocks divide. Returns the sum of rows.
int64_t weight_parts(std::span<const ConstTensorView> parts);

/// Every element of `values` (i32 or i64, rank 1) is in [0, limit).
void index_values(const char* op, const char* tensor, ConstTensorView values, int64_t limit);
/// query_start rises from 0 to `tokens`; each sequence's keys cover its own rows and lie in blocks of the
/// pool.
void attention_values(const KvCacheView& cache, const AttentionBatch& batch, int64_t tokens);

}  // namespace lmdeploy::checks
