// The entries of IsaOps that one instruction set's files define for its table.
#pragma once

#include "lmdeploy/kernels/cpu/isa.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {

void pack_tokens(const PackedTokens& packed, const float* x, int64_t stride, int64_t first_tile,
                 int64_t end_tile);
void linear(const LinearRange& range);
void linear_int8(const LinearRange& range);
void linear_bf16(const LinearRange& range);

void pack_queries(float* packed, const QueryRows& rows);
void attention_span(const AttentionSpan& span);
void merge_spans(float* max, float* sum, float* values, float other_max, float other_sum,
                 const float* other_values, int64_t value_dim);
void finish_row(float* out, const float* values, float max, float sum, float sink, int64_t value_dim);

void norm(const NormRow& row);
void activate(Activation activation, float* out, const float* x, int64_t n);
void glu(Activation activation, float* out, const float* gate, const float* up, int64_t n);
void clamped_glu(float* out, const float* gate, const float* up, int64_t n, float limit);
void add(float* out, const float* a, const float* b, int64_t n);
void scale(float* x, int64_t n, float factor);
void clamp(float* x, int64_t n, float limit);
void soft_cap(float* x, int64_t n, float cap);
void weighted_sum(float* out, int64_t n, const float* x, int64_t stride, const int32_t* rows,
                  const float* weights, int64_t count);
void rope(float* x, const float* table, int64_t heads, int64_t head_dim, int64_t half, bool interleaved);
void store_row(CacheKind kind, std::byte* dst, const float* src, int64_t n);
void quantize_row(CacheKind kind, std::byte* codes, std::byte* params, const float* src, int64_t n,
                  int64_t parts);
void turn_row(float* dst, const float* src, int64_t n, int64_t run);

}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
