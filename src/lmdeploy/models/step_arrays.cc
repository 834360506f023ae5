// Derives positions, cache slots and rope tables of a step from its StepInput.
#include "lmdeploy/models/step_arrays.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

ConstTensorView head(const Tensor& tensor, int64_t count) {
  return {tensor.view().data(), tensor.dtype(), {count}};
}

}  // namespace

ConstTensorView view_of(std::span<const int32_t> values) {
  return {
      reinterpret_cast<const std::byte*>(values.data()), DType::kI32, {static_cast<int64_t>(values.size())}};
}

RopeTableCache::RopeTableCache(const RopeSpec& spec, Allocator& allocator)
    : spec_(spec), allocator_(allocator) {}

int32_t RopeTableCache::find(int64_t rope_length) {
  const int64_t key = rope_table_key(spec_, rope_length);
  const auto known =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  if (known != entries_.end()) {
    known->last_step = step_;
    return static_cast<int32_t>(known - entries_.begin());
  }
  const size_t row = free_row();
  entries_[row] = {key, step_};
  const RopeTable table = make_rope_table(spec_, rope_length);
  std::memcpy(inv_freq_.view().row_data(static_cast<int64_t>(row)), table.inv_freq.data(),
              table.inv_freq.size() * sizeof(double));
  scale_.span<double>()[row] = table.scale;
  return static_cast<int32_t>(row);
}

// A new row below kMostKept, then the least recently used one; a new row again when this step uses them all.
size_t RopeTableCache::free_row() {
  if (entries_.size() >= kMostKept) {
    const auto oldest =
        std::min_element(entries_.begin(), entries_.end(),
                         [](const Entry& a, const Entry& b) { return a.last_step < b.last_step; });
    if (oldest->last_step < step_) return static_cast<size_t>(oldest - entries_.begin());
  }
  if (static_cast<int64_t>(entries_.size()) == (inv_freq_.empty() ? 0 : inv_freq_.dim(0))) grow();
  entries_.emplace_back();
  return entries_.size() - 1;
}

void RopeTableCache::grow() {
  const int64_t capacity = std::max<int64_t>(1, 2 * static_cast<int64_t>(entries_.size()));
  Tensor inv_freq(DType::kF64, {capacity, spec_.rotary_dim / 2}, allocator_);
  Tensor scale(DType::kF64, {capacity}, allocator_);
  if (!entries_.empty()) {
    std::memcpy(inv_freq.view().data(), inv_freq_.view().data(), inv_freq_.bytes());
    std::memcpy(scale.view().data(), scale_.view().data(), scale_.bytes());
  }
  inv_freq_ = std::move(inv_freq);
  scale_ = std::move(scale);
}

ConstTensorView RopeTableCache::inv_freq() const {
  return inv_freq_.view().slice_rows(0, static_cast<int64_t>(entries_.size()));
}

ConstTensorView RopeTableCache::scale() const { return head(scale_, static_cast<int64_t>(entries_.size())); }

void check_step(const StepInput& in, const KvCacheView& cache, const KvLayout& layout, size_t num_groups,
                const StepLimits& limits) {
  const auto tokens = static_cast<int64_t>(in.token_ids.size());
  const size_t num_seqs = in.kv_len.size();
  LMD_CHECK(tokens <= limits.tokens, tokens, " tokens, room for ", limits.tokens);
  LMD_CHECK(static_cast<int64_t>(in.logit_rows.size()) <= limits.logit_rows, in.logit_rows.size(),
            " logit rows, room for ", limits.logit_rows);
  LMD_CHECK(in.query_start.size() == num_seqs + 1 && in.rope_length.size() == num_seqs, in.query_start.size(),
            " query starts, ", in.rope_length.size(), " rope lengths, ", num_seqs, " sequences");
  LMD_CHECK(in.query_start.front() == 0 && in.query_start.back() == tokens, "query_start ends at ",
            in.query_start.back(), " of ", tokens);
  LMD_CHECK(in.block_table.size() == num_groups * num_seqs * static_cast<size_t>(in.max_blocks),
            in.block_table.size(), " block ids for ", num_groups, " * ", num_seqs, " * ", in.max_blocks);
  LMD_CHECK(cache.layout.num_layers == layout.num_layers &&
                cache.layout.num_kv_heads == layout.num_kv_heads &&
                cache.layout.head_dim == layout.head_dim && cache.layout.latent_dim == layout.latent_dim,
            "the cache is laid out for another model");
  for (size_t s = 0; s < num_seqs; ++s) {
    const int64_t count = in.query_start[s + 1] - in.query_start[s];
    LMD_CHECK(count >= 1 && count <= in.kv_len[s], "sequence ", s, ": ", count, " tokens, ", in.kv_len[s],
              " keys");
    LMD_CHECK(in.kv_len[s] <= in.max_blocks * cache.layout.block_len, "sequence ", s, ": ", in.kv_len[s],
              " keys in ", in.max_blocks, " blocks");
  }
  int64_t previous = -1;
  for (const int32_t row : in.logit_rows) {
    LMD_CHECK(row > previous && row < tokens, "logit row ", row, " after ", previous, " of ", tokens);
    previous = row;
  }
}

StepArrays::StepArrays(int64_t max_tokens, size_t num_groups, Allocator& allocator)
    : positions_(DType::kI32, {max_tokens}, allocator),
      slots_(DType::kI64, {static_cast<int64_t>(num_groups), max_tokens}, allocator),
      rope_rows_(DType::kI32, {max_tokens}, allocator) {}

void StepArrays::fill(const StepInput& input, int64_t block_len) {
  tokens_ = static_cast<int64_t>(input.token_ids.size());
  const auto positions = positions_.span<int32_t>();
  const size_t num_seqs = input.kv_len.size();
  for (size_t s = 0; s < num_seqs; ++s) {
    const int32_t end = input.query_start[s + 1];
    for (int32_t t = input.query_start[s]; t < end; ++t)
      positions[static_cast<size_t>(t)] = input.kv_len[s] - (end - t);
  }
  for (int64_t group = 0; group < slots_.dim(0); ++group) {
    auto* slots = slots_.view().row<int64_t>(group);
    for (size_t s = 0; s < num_seqs; ++s) {
      const size_t line = static_cast<size_t>(group) * num_seqs + s;
      const int32_t* blocks = input.block_table.data() + static_cast<int64_t>(line) * input.max_blocks;
      for (int32_t t = input.query_start[s]; t < input.query_start[s + 1]; ++t) {
        const int64_t position = positions[static_cast<size_t>(t)];
        slots[t] = blocks[position / block_len] * block_len + position % block_len;
      }
    }
  }
}

ConstTensorView StepArrays::rope_rows(const StepInput& input, RopeTableCache& rope) {
  rope.begin_step();
  const auto rows = rope_rows_.span<int32_t>();
  for (size_t s = 0; s < input.kv_len.size(); ++s) {
    const int32_t row = rope.find(input.rope_length[s]);
    for (int32_t t = input.query_start[s]; t < input.query_start[s + 1]; ++t)
      rows[static_cast<size_t>(t)] = row;
  }
  return head(rope_rows_, tokens_);
}

ConstTensorView StepArrays::positions() const { return head(positions_, tokens_); }

ConstTensorView StepArrays::slots(size_t group) const {
  return {slots_.view().row_data(static_cast<int64_t>(group)), DType::kI64, {tokens_}};
}

AttentionBatch StepArrays::batch(const StepInput& input, size_t group) const {
  const auto num_seqs = static_cast<int64_t>(input.kv_len.size());
  const int32_t* table = input.block_table.data() + static_cast<int64_t>(group) * num_seqs * input.max_blocks;
  return {
      .query_start = view_of(input.query_start),
      .kv_len = view_of(input.kv_len),
      .block_table = {reinterpret_cast<const std::byte*>(table), DType::kI32, {num_seqs, input.max_blocks}}};
}

}  // namespace lmdeploy
