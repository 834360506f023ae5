// Shape and dtype checks of every op: one clear Error(kInvalidArgument) that names the op and the tensor.
// They read no element, so that they hold for device memory too; the *_values checks read host memory and are
// called by the back ends that live there.
#pragma once

#include <span>

#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy::checks {

void start_draws(const Kernels& kernels, ConstTensorView logits, std::span<const TokenDraw> draws,
                 std::span<const LogitEdit> edits);
void take_drawn(ConstTensorView ids, ConstTensorView draws);
void embedding(const Kernels& kernels, ConstTensorView out, ConstTensorView ids, const PackedWeight& table);
void linear(const Kernels& kernels, ConstTensorView out, ConstTensorView x, const PackedWeight& weight,
            const std::optional<ConstTensorView>& bias);
void norm(const Kernels& kernels, ConstTensorView out, ConstTensorView x, ConstTensorView weight,
          const NormOptions& options);
void add_norm(const Kernels& kernels, ConstTensorView out, ConstTensorView residual, ConstTensorView x,
              ConstTensorView weight, const NormOptions& options);
void rope_table(const Kernels& kernels, ConstTensorView table, ConstTensorView positions,
                ConstTensorView inv_freq, ConstTensorView scale, ConstTensorView table_idx);
void rope(const Kernels& kernels, ConstTensorView x, ConstTensorView table, const RopeOptions& options);
void kv_write(const Kernels& kernels, const KvCacheView& cache, int64_t layer, ConstTensorView k,
              ConstTensorView v, ConstTensorView slots);
void attention(const Kernels& kernels, ConstTensorView out, ConstTensorView q, const KvCacheView& cache,
               const AttentionBatch& batch, const AttentionOptions& options);
void glu(const Kernels& kernels, const char* op, ConstTensorView out, ConstTensorView x);
void same_shape(const Kernels& kernels, const char* op, ConstTensorView out, ConstTensorView x);
void add(const Kernels& kernels, ConstTensorView out, ConstTensorView a, ConstTensorView b);
void in_place(const Kernels& kernels, const char* op, ConstTensorView x);
/// Finite and above 0.
void limit(const char* op, const char* name, float value);
void scale_rows(const Kernels& kernels, ConstTensorView x, ConstTensorView factors);
void gate_rows(const Kernels& kernels, ConstTensorView x, ConstTensorView gate);
void route(const Kernels& kernels, ConstTensorView ids, ConstTensorView weights, ConstTensorView logits,
           const std::optional<ConstTensorView>& correction, const RouteOptions& options);
void sort_by_expert(ConstTensorView expert_start, ConstTensorView row_tokens, ConstTensorView pair_rows,
                    ConstTensorView ids);
void expert_linear(const Kernels& kernels, ConstTensorView out, ConstTensorView x,
                   std::span<const PackedWeight* const> experts, ConstTensorView expert_start,
                   const std::optional<ConstTensorView>& bias);
void combine_experts(const Kernels& kernels, ConstTensorView out, ConstTensorView x, ConstTensorView weights,
                     ConstTensorView pair_rows);
void copy(const Kernels& kernels, ConstTensorView out, ConstTensorView x);
void gather_rows(const Kernels& kernels, ConstTensorView out, ConstTensorView x, ConstTensorView rows);

/// The parts of one packed weight: at least one, each [rows, cols] of float or quantised kind, equal cols
/// that every part's blocks divide; a column order that is empty or a permutation. Returns the sum of rows.
int64_t weight_parts(std::span<const ConstTensorView> parts, std::span<const int32_t> column_order);

/// Every element of `values` (i32 or i64, rank 1 or 2) is in [0, limit).
void index_values(const char* op, const char* tensor, ConstTensorView values, int64_t limit);
/// query_start rises from 0 to `tokens`; each sequence's keys cover its own rows and lie, as far as the
/// window sees them, in blocks of the pool.
void attention_values(const KvCacheView& cache, const AttentionBatch& batch, int64_t tokens, int64_t window);
/// expert_start rises from 0 to `rows`.
void expert_values(ConstTensorView expert_start, int64_t rows);

}  // namespace lmdeploy::checks
