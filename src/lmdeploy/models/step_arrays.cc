// Derives positions, cache slots and rope tables of a step from its StepInput.
#include "lmdeploy/models/step_arrays.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/models/attention_block.h"

namespace lmdeploy {
namespace {

ConstTensorView head(const Tensor& tensor, int64_t count) {
  return {tensor.view().data(), tensor.dtype(), {count}};
}

}  // namespace

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
  ++version_;
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
  Tensor inv_freq(DType::kF64, {capacity, spec_.rotary_dim / 2});
  Tensor scale(DType::kF64, {capacity});
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
  LMD_CHECK(in.draws.empty() || in.draws.size() == in.token_ids.size(), in.draws.size(), " draws, ", tokens,
            " tokens");
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

StepArrays::StepArrays(size_t num_groups, const Kernels& kernels)
    : kernels_(kernels), num_groups_(static_cast<int64_t>(num_groups)) {}

void StepArrays::fill(const StepInput& input, int64_t block_len, const StepExtras& extras) {
  lay_out(input, extras);
  const auto take = [&](std::span<const int32_t> values, const Section& section) {
    std::ranges::copy(values, host<int32_t>(section).begin());
  };
  take(input.token_ids, token_ids_);
  take(input.query_start, query_start_);
  take(input.kv_len, kv_len_);
  take_block_table(input);
  take(input.logit_rows, logit_rows_);
  compute_positions(input);
  compute_slots(input, block_len);
  if (extras.rope != nullptr) compute_rope_rows(input, *extras.rope, rope_rows_);
  if (extras.local_rope != nullptr) compute_rope_rows(input, *extras.local_rope, local_rope_rows_);
  compute_logn(extras.logn_length);
  take(input.draws, draws_);
  hand_over();
  const ConstTensorView ids = token_ids();
  if (!input.draws.empty())
    kernels_.take_drawn({data_ + token_ids_.offset, ids.dtype(), ids.shape()}, view(draws_));
}

void StepArrays::hand_over() {
  data_ = host_.view().data();
  if (!kernels_.has_own_memory()) return;
  if (device_.empty() || device_.bytes() < host_.bytes())
    device_ = Tensor(DType::kU8, host_.shape(), kernels_.allocator());
  const ConstTensorView used(data_, DType::kU8, {bytes_});
  data_ = device_.view().data();
  kernels_.copy_from_host({data_, DType::kU8, {bytes_}}, used);
}

// Entries beyond a sequence's blocks are not looked at.
void StepArrays::take_block_table(const StepInput& input) {
  const int64_t lines = block_table_.shape[0], stride = block_table_.shape[1];
  int32_t* to = host<int32_t>(block_table_).data();
  const int32_t* from = input.block_table.data();
  for (int64_t line = 0; line < lines; ++line, to += stride, from += input.max_blocks)
    std::fill_n(std::copy_n(from, input.max_blocks, to), stride - input.max_blocks, -1);
}

void StepArrays::lay_out(const StepInput& input, const StepExtras& extras) {
  constexpr int64_t kAlignment = 64;
  bytes_ = 0;
  const auto place = [&](Section& section, DType dtype, const Shape& shape) {
    section = {bytes_, dtype, shape};
    bytes_ += (shape.numel() * block_bytes(dtype) + kAlignment - 1) / kAlignment * kAlignment;
  };
  const auto tokens = static_cast<int64_t>(input.token_ids.size());
  const auto num_seqs = static_cast<int64_t>(input.kv_len.size());
  place(token_ids_, DType::kI32, {tokens});
  place(query_start_, DType::kI32, {num_seqs + 1});
  place(kv_len_, DType::kI32, {num_seqs});
  // On a device steps are recorded for each width: there are few of them.
  const int64_t width = kernels_.has_own_memory()
                            ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(input.max_blocks)))
                            : input.max_blocks;
  place(block_table_, DType::kI32, {num_groups_ * num_seqs, width});
  place(logit_rows_, DType::kI32, {static_cast<int64_t>(input.logit_rows.size())});
  place(positions_, DType::kI32, {tokens});
  place(slots_, DType::kI64, {num_groups_, tokens});
  place(rope_rows_, DType::kI32, {extras.rope != nullptr ? tokens : 0});
  place(local_rope_rows_, DType::kI32, {extras.local_rope != nullptr ? tokens : 0});
  place(logn_, DType::kF32, {extras.logn_length > 0 ? tokens : 0});
  place(draws_, DType::kI32, {static_cast<int64_t>(input.draws.size())});
  if (host_.empty() || static_cast<int64_t>(host_.bytes()) < bytes_) host_ = Tensor(DType::kU8, {2 * bytes_});
}

void StepArrays::compute_positions(const StepInput& input) {
  const auto positions = host<int32_t>(positions_);
  for (size_t s = 0; s < input.kv_len.size(); ++s) {
    const int32_t end = input.query_start[s + 1];
    for (int32_t t = input.query_start[s]; t < end; ++t)
      positions[static_cast<size_t>(t)] = input.kv_len[s] - (end - t);
  }
}

void StepArrays::compute_slots(const StepInput& input, int64_t block_len) {
  const auto positions = host<int32_t>(positions_);
  const size_t num_seqs = input.kv_len.size();
  int64_t* slots = host<int64_t>(slots_).data();
  for (int64_t group = 0; group < num_groups_; ++group, slots += positions.size()) {
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

void StepArrays::compute_rope_rows(const StepInput& input, RopeTableCache& rope, const Section& rows) {
  rope.begin_step();
  const auto out = host<int32_t>(rows);
  for (size_t s = 0; s < input.kv_len.size(); ++s) {
    const int32_t row = rope.find(input.rope_length[s]);
    for (int32_t t = input.query_start[s]; t < input.query_start[s + 1]; ++t)
      out[static_cast<size_t>(t)] = row;
  }
}

void StepArrays::compute_logn(int64_t length) {
  const auto positions = host<int32_t>(positions_);
  const auto out = host<float>(logn_);
  for (size_t t = 0; t < out.size(); ++t) out[t] = static_cast<float>(logn_factor(positions[t], length));
}

ConstTensorView StepArrays::slots(size_t group) const {
  const int64_t tokens = slots_.shape[1];
  return {view(slots_).row_data(static_cast<int64_t>(group)), DType::kI64, {tokens}};
}

AttentionBatch StepArrays::batch(size_t group) const {
  const int64_t num_seqs = kv_len_.shape[0];
  const ConstTensorView tables = view(block_table_);
  return {.query_start = view(query_start_),
          .kv_len = view(kv_len_),
          .block_table = tables.slice_rows(static_cast<int64_t>(group) * num_seqs, num_seqs)};
}

}  // namespace lmdeploy
