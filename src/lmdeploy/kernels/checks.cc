// Shape and dtype checks of every op; see checks.h.
#include "lmdeploy/kernels/checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "lmdeploy/core/error.h"

namespace lmdeploy::checks {
namespace {

// The checks of one call; all messages begin with the op's name.
class OpCheck {
 public:
  explicit OpCheck(const char* op) : op_(op) {}

  template <typename... Args>
  [[noreturn]] void fail(const Args&... what) const {
    throw Error(ErrorCode::kInvalidArgument, cat(op_, ": ", what...));
  }

  void tensor(const char* name, ConstTensorView t, DType dtype, const Shape& shape) const {
    if (t.dtype() != dtype || t.shape() != shape)
      fail(name, " is ", t.dtype(), " ", t.shape(), ", expected ", dtype, " ", shape);
  }

  // A hidden state or the like: rank 2, of a dtype that the back end computes in.
  void activation(const char* name, const Kernels& kernels, ConstTensorView t) const {
    if (!kernels.takes_activation(t.dtype()))
      fail(name, " is ", t.dtype(), ", back end ", kernels.name(), " takes ", kernels.activation_dtype());
    if (t.rank() != 2) fail(name, " has shape ", t.shape(), ", expected two dimensions");
  }
  void activation(const char* name, const Kernels& kernels, ConstTensorView t, const Shape& shape) const {
    activation(name, kernels, t);
    if (t.shape() != shape) fail(name, " has shape ", t.shape(), ", expected ", shape);
  }

  void indices(const char* name, ConstTensorView t, DType dtype) const {
    if (t.dtype() != dtype || t.rank() != 1)
      fail(name, " is ", t.dtype(), " ", t.shape(), ", expected one dimension of ", dtype);
  }

  // Memory that the op writes while it still reads the other.
  void disjoint(const char* name_a, ConstTensorView a, const char* name_b, ConstTensorView b) const {
    const auto end = [](ConstTensorView t) {
      return t.rows() == 0 ? t.data() : t.row_data(t.rows() - 1) + row_bytes(t.dtype(), t.cols());
    };
    if (a.data() < end(b) && b.data() < end(a)) fail(name_a, " and ", name_b, " overlap");
  }

  void cache(const Kernels& kernels, const KvCacheView& cache, int64_t layer) const {
    const KvLayout& l = cache.layout;
    if (!kernels.takes_kv_dtype(l.dtype))
      fail("the KV cache is ", l.dtype, ", which back end ", kernels.name(), " does not take");
    if (l.num_kv_heads <= 0 || l.head_dim <= 0 || l.block_len <= 0 || cache.num_blocks < 0 ||
        l.latent_dim < 0 || l.latent_dim > l.head_dim)
      fail("the KV cache has ", cache.num_blocks, " blocks of ", l.block_len, " tokens, ", l.num_kv_heads,
           " heads of ", l.head_dim, l.latent_dim == 0 ? "" : cat(", ", l.latent_dim, " of them latent"));
    if (layer < 0 || layer >= l.num_layers) fail("layer ", layer, " is not in [0, ", l.num_layers, ")");
  }
  void permutation(const char* name, std::span<const int32_t> values, int64_t count) const {
    if (static_cast<int64_t>(values.size()) != count)
      fail(name, " has ", values.size(), " entries, expected ", count);
    std::vector<bool> seen(values.size());
    for (const int32_t value : values) {
      if (value < 0 || value >= count) fail(name, " has ", value, ", which is not in [0, ", count, ")");
      if (seen[static_cast<size_t>(value)]) fail(name, " has ", value, " twice");
      seen[static_cast<size_t>(value)] = true;
    }
  }

 private:
  const char* op_;
};

int64_t index_at(ConstTensorView t, int64_t row, int64_t col) {
  int64_t wide = 0;
  int32_t narrow = 0;
  if (t.dtype() == DType::kI64) {
    std::memcpy(&wide, t.row_data(row) + col * 8, sizeof(wide));
    return wide;
  }
  std::memcpy(&narrow, t.row_data(row) + col * 4, sizeof(narrow));
  return narrow;
}
int64_t index_at(ConstTensorView t, int64_t i) { return index_at(t, 0, i); }

}  // namespace

void start_draws(const Kernels& kernels, ConstTensorView logits, std::span<const TokenDraw> draws,
                 std::span<const LogitEdit> edits) {
  const OpCheck check("start_draws");
  if (logits.dtype() != kernels.wide_dtype() || logits.rank() != 2 || logits.cols() == 0)
    check.fail("logits are ", logits.dtype(), " ", logits.shape(), ", expected rows of ",
               kernels.wide_dtype());
  const auto num_edits = static_cast<int64_t>(edits.size());
  for (const TokenDraw& draw : draws) {
    if (draw.row < 0 || draw.row >= logits.rows())
      check.fail("row ", draw.row, " is not in [0, ", logits.rows(), ")");
    if (draw.first_edit < 0 || draw.num_edits < 0 || draw.first_edit + int64_t{draw.num_edits} > num_edits)
      check.fail("row ", draw.row, " has edits ", draw.first_edit, " to ", draw.first_edit + draw.num_edits,
                 " of ", num_edits);
  }
}

void take_drawn(ConstTensorView ids, ConstTensorView draws) {
  const OpCheck check("take_drawn");
  check.indices("ids", ids, DType::kI32);
  check.tensor("draws", draws, DType::kI32, ids.shape());
}

void embedding(const Kernels& kernels, ConstTensorView out, ConstTensorView ids, const PackedWeight& table) {
  const OpCheck check("embedding");
  if (!table.column_order().empty()) check.fail("the table has a column order; pack its columns in order");
  check.indices("ids", ids, DType::kI32);
  check.activation("out", kernels, out, {ids.cols(), table.cols()});
}

void linear(const Kernels& kernels, ConstTensorView out, ConstTensorView x, const PackedWeight& weight,
            const std::optional<ConstTensorView>& bias) {
  const OpCheck check("linear");
  check.activation("x", kernels, x);
  if (x.cols() != weight.cols())
    check.fail("x has shape ", x.shape(), ", the weight is [", weight.rows(), ", ", weight.cols(), "]");
  check.activation("out", kernels, out, {x.dim(0), weight.rows()});
  if (bias) check.tensor("bias", *bias, DType::kF32, {weight.rows()});
  check.disjoint("out", out, "x", x);
}

namespace {

void norm_weights(const OpCheck& check, ConstTensorView x, ConstTensorView weight, const NormOptions& o) {
  if (o.group != 0 && (o.group < 0 || x.cols() % o.group != 0))
    check.fail("x has shape ", x.shape(), ", not whole groups of ", o.group);
  const bool by_group = o.group > 0 && weight.cols() == o.group;
  const Shape shape = {by_group ? o.group : x.cols()};
  check.tensor("weight", weight, DType::kF32, shape);
  if (o.bias) check.tensor("bias", *o.bias, DType::kF32, shape);
}

}  // namespace

void norm(const Kernels& kernels, ConstTensorView out, ConstTensorView x, ConstTensorView weight,
          const NormOptions& options) {
  const OpCheck check("norm");
  check.activation("x", kernels, x);
  check.activation("out", kernels, out, x.shape());
  norm_weights(check, x, weight, options);
}

void add_norm(const Kernels& kernels, ConstTensorView out, ConstTensorView residual, ConstTensorView x,
              ConstTensorView weight, const NormOptions& options) {
  const OpCheck check("add_norm");
  check.activation("x", kernels, x);
  check.activation("residual", kernels, residual, x.shape());
  check.activation("out", kernels, out, x.shape());
  if (options.group != 0) check.fail("group is ", options.group, ", expected 0");
  norm_weights(check, x, weight, options);
}

void rope_table(const Kernels& kernels, ConstTensorView table, ConstTensorView positions,
                ConstTensorView inv_freq, ConstTensorView scale, ConstTensorView table_idx) {
  const OpCheck check("rope_table");
  check.indices("positions", positions, DType::kI32);
  if (inv_freq.rank() != 2) check.fail("inv_freq has shape ", inv_freq.shape(), ", expected two dimensions");
  const int64_t num_tables = inv_freq.dim(0);
  const int64_t half = inv_freq.dim(1);
  check.tensor("inv_freq", inv_freq, DType::kF64, {num_tables, half});
  check.tensor("scale", scale, DType::kF64, {num_tables});
  check.tensor("table_idx", table_idx, DType::kI32, {positions.cols()});
  check.activation("table", kernels, table, {positions.cols(), 2 * half});
}

void rope(const Kernels& kernels, ConstTensorView x, ConstTensorView table, const RopeOptions& options) {
  const OpCheck check("rope");
  check.activation("x", kernels, x);
  if (options.head_dim <= 0 || x.cols() % options.head_dim != 0)
    check.fail("x has shape ", x.shape(), ", not whole heads of ", options.head_dim);
  check.activation("table", kernels, table, {x.dim(0), table.cols()});
  if (options.first < 0 || table.cols() % 2 != 0 || table.cols() > options.head_dim - options.first)
    check.fail("table has shape ", table.shape(), ": rotary_dim must be even and at most head_dim ",
               options.head_dim, options.first == 0 ? "" : cat(" less the first ", options.first));
}

void kv_write(const Kernels& kernels, const KvCacheView& cache, int64_t layer, ConstTensorView k,
              ConstTensorView v, ConstTensorView slots) {
  const OpCheck check("kv_write");
  check.cache(kernels, cache, layer);
  check.indices("slots", slots, DType::kI64);
  const Shape shape = {slots.cols(), cache.layout.num_kv_heads * cache.layout.head_dim};
  check.activation("k", kernels, k, shape);
  check.activation("v", kernels, v, shape);
}

void attention(const Kernels& kernels, ConstTensorView out, ConstTensorView q, const KvCacheView& cache,
               const AttentionBatch& batch, const AttentionOptions& options) {
  const OpCheck check("attention");
  check.cache(kernels, cache, options.layer);
  if (options.num_heads <= 0 || options.num_heads % cache.layout.num_kv_heads != 0)
    check.fail("num_heads ", options.num_heads, " is not a multiple of the cache's ",
               cache.layout.num_kv_heads, " heads");
  check.activation("q", kernels, q);
  check.activation("q", kernels, q, {q.dim(0), options.num_heads * cache.layout.head_dim});
  check.activation("out", kernels, out, {q.dim(0), options.num_heads * cache.layout.value_dim()});
  if (options.window < 0) check.fail("window is ", options.window, ", expected 0 or more");
  if (!(options.soft_cap >= 0 && std::isfinite(options.soft_cap)))
    check.fail("soft_cap is ", options.soft_cap, ", expected a finite number, 0 or more");
  if (options.sinks) check.tensor("sinks", *options.sinks, DType::kF32, {options.num_heads});
  if (options.alibi_slopes)
    check.tensor("alibi_slopes", *options.alibi_slopes, DType::kF32, {options.num_heads});
  check.disjoint("out", out, "q", q);
  check.indices("kv_len", batch.kv_len, DType::kI32);
  const int64_t num_seqs = batch.kv_len.cols();
  check.tensor("query_start", batch.query_start, DType::kI32, {num_seqs + 1});
  if (batch.block_table.rank() != 2)
    check.fail("block_table has shape ", batch.block_table.shape(), ", expected two dimensions");
  check.tensor("block_table", batch.block_table, DType::kI32, {num_seqs, batch.block_table.dim(1)});
}

void glu(const Kernels& kernels, const char* op, ConstTensorView out, ConstTensorView x) {
  const OpCheck check(op);
  check.activation("out", kernels, out);
  check.activation("x", kernels, x, {out.dim(0), 2 * out.cols()});
}

void same_shape(const Kernels& kernels, const char* op, ConstTensorView out, ConstTensorView x) {
  const OpCheck check(op);
  check.activation("out", kernels, out);
  check.activation("x", kernels, x, out.shape());
}

void add(const Kernels& kernels, ConstTensorView out, ConstTensorView a, ConstTensorView b) {
  const OpCheck check("add");
  check.activation("out", kernels, out);
  check.activation("a", kernels, a, out.shape());
  check.activation("b", kernels, b, out.shape());
}

void in_place(const Kernels& kernels, const char* op, ConstTensorView x) {
  OpCheck(op).activation("x", kernels, x);
}

void limit(const char* op, const char* name, float value) {
  if (!(value > 0 && std::isfinite(value)))
    OpCheck(op).fail(name, " is ", value, ", expected a finite number above 0");
}

void scale_rows(const Kernels& kernels, ConstTensorView x, ConstTensorView factors) {
  const OpCheck check("scale_rows");
  check.activation("x", kernels, x);
  check.tensor("factors", factors, DType::kF32, {x.dim(0)});
}

void gate_rows(const Kernels& kernels, ConstTensorView x, ConstTensorView gate) {
  const OpCheck check("gate_rows");
  check.activation("x", kernels, x);
  check.activation("gate", kernels, gate, {x.dim(0), 1});
}

void route(const Kernels& kernels, ConstTensorView ids, ConstTensorView weights, ConstTensorView logits,
           const std::optional<ConstTensorView>& correction, const RouteOptions& o) {
  const OpCheck check("route");
  check.activation("logits", kernels, logits);
  check.activation("weights", kernels, weights, {logits.dim(0), weights.cols()});
  check.tensor("ids", ids, DType::kI32, weights.shape());
  const int64_t experts = logits.cols(), top_k = weights.cols();
  if (correction) check.tensor("correction", *correction, DType::kF32, {experts});
  if (o.num_groups < 1 || experts % o.num_groups != 0)
    check.fail(experts, " experts are not whole groups: num_groups is ", o.num_groups);
  const int64_t group_size = experts / o.num_groups;
  if (o.groups_kept < 1 || o.groups_kept > o.num_groups || o.group_best < 1 || o.group_best > group_size)
    check.fail("groups_kept ", o.groups_kept, ", group_best ", o.group_best, ": there are ", o.num_groups,
               " groups of ", group_size);
  if (o.renormalize && !(o.norm_p > 0)) check.fail("norm_p is ", o.norm_p, ", expected more than 0");
  if (top_k < 1 || top_k > o.groups_kept * group_size)
    check.fail("cannot choose ", top_k, " of ", o.groups_kept * group_size, " experts");
}

void sort_by_expert(ConstTensorView expert_start, ConstTensorView row_tokens, ConstTensorView pair_rows,
                    ConstTensorView ids) {
  const OpCheck check("sort_by_expert");
  if (ids.rank() != 2) check.fail("ids has shape ", ids.shape(), ", expected two dimensions");
  check.tensor("ids", ids, DType::kI32, ids.shape());
  check.tensor("pair_rows", pair_rows, DType::kI32, ids.shape());
  check.tensor("row_tokens", row_tokens, DType::kI32, {ids.dim(0) * ids.dim(1)});
  check.indices("expert_start", expert_start, DType::kI32);
  if (expert_start.cols() < 2) check.fail("expert_start has shape ", expert_start.shape());
}

void expert_linear(const Kernels& kernels, ConstTensorView out, ConstTensorView x,
                   std::span<const PackedWeight* const> experts, ConstTensorView expert_start,
                   const std::optional<ConstTensorView>& bias) {
  const OpCheck check("expert_linear");
  if (experts.empty()) check.fail("no experts");
  const auto num_experts = static_cast<int64_t>(experts.size());
  const int64_t rows = experts[0]->rows(), cols = experts[0]->cols();
  for (const PackedWeight* expert : experts)
    if (expert->rows() != rows || expert->cols() != cols)
      check.fail("the experts differ: [", rows, ", ", cols, "] and [", expert->rows(), ", ", expert->cols(),
                 "]");
  check.activation("x", kernels, x, {x.dim(0), cols});
  check.activation("out", kernels, out, {x.dim(0), rows});
  check.tensor("expert_start", expert_start, DType::kI32, {num_experts + 1});
  if (bias) check.tensor("bias", *bias, DType::kF32, {num_experts, rows});
  check.disjoint("out", out, "x", x);
}

void combine_experts(const Kernels& kernels, ConstTensorView out, ConstTensorView x, ConstTensorView weights,
                     ConstTensorView pair_rows) {
  const OpCheck check("combine_experts");
  check.activation("out", kernels, out);
  check.activation("weights", kernels, weights, {out.dim(0), weights.cols()});
  check.tensor("pair_rows", pair_rows, DType::kI32, weights.shape());
  check.activation("x", kernels, x, {x.dim(0), out.cols()});
  check.disjoint("out", out, "x", x);
}

void copy(const Kernels& kernels, ConstTensorView out, ConstTensorView x) {
  const OpCheck check("copy");
  check.activation("x", kernels, x);
  check.activation("out", kernels, out, x.shape());
}

void gather_rows(const Kernels& kernels, ConstTensorView out, ConstTensorView x, ConstTensorView rows) {
  const OpCheck check("gather_rows");
  check.indices("rows", rows, DType::kI32);
  check.activation("x", kernels, x);
  check.activation("out", kernels, out, {rows.cols(), x.cols()});
  check.disjoint("out", out, "x", x);
}

int64_t weight_parts(std::span<const ConstTensorView> parts, std::span<const int32_t> column_order) {
  const OpCheck check("pack_weight");
  if (parts.empty()) check.fail("no parts");
  int64_t rows = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const ConstTensorView& part = parts[i];
    if (!is_float(part.dtype()) && !is_quantized(part.dtype()))
      check.fail("part ", i, " is ", part.dtype(), ", expected a float or quantised kind");
    if (part.rank() != 2 || part.dim(0) <= 0 || part.dim(1) <= 0)
      check.fail("part ", i, " has shape ", part.shape(), ", expected [rows, cols]");
    if (part.dim(1) != parts[0].dim(1))
      check.fail("part ", i, " has ", part.dim(1), " columns, part 0 has ", parts[0].dim(1));
    if (part.dim(1) % block_size(part.dtype()) != 0)
      check.fail("part ", i, " has ", part.dim(1), " columns, not whole ", part.dtype(), " blocks of ",
                 block_size(part.dtype()));
    rows += part.dim(0);
  }
  if (!column_order.empty()) check.permutation("column_order", column_order, parts[0].dim(1));
  return rows;
}

void index_values(const char* op, const char* tensor, ConstTensorView values, int64_t limit) {
  for (int64_t r = 0; r < values.rows(); ++r) {
    for (int64_t i = 0; i < values.cols(); ++i) {
      const int64_t value = index_at(values, r, i);
      if (value >= 0 && value < limit) continue;
      const std::string row = values.rank() > 1 ? cat(r, ", ") : "";
      OpCheck(op).fail(tensor, "[", row, i, "] is ", value, ", expected [0, ", limit, ")");
    }
  }
}

void expert_values(ConstTensorView expert_start, int64_t rows) {
  const OpCheck check("expert_linear");
  int64_t before = 0;
  for (int64_t e = 0; e < expert_start.cols(); ++e) {
    const int64_t start = index_at(expert_start, e);
    if (start < before || start > rows)
      check.fail("expert_start[", e, "] is ", start, ", expected [", before, ", ", rows, "]");
    before = start;
  }
  if (index_at(expert_start, 0) != 0 || before != rows)
    check.fail("expert_start goes from ", index_at(expert_start, 0), " to ", before, ", x has ", rows,
               " rows");
}

void attention_values(const KvCacheView& cache, const AttentionBatch& batch, int64_t tokens, int64_t window) {
  const OpCheck check("attention");
  const int64_t num_seqs = batch.kv_len.cols();
  const int64_t block_len = cache.layout.block_len;
  int64_t start = index_at(batch.query_start, 0);
  if (start != 0) check.fail("query_start[0] is ", start, ", expected 0");
  for (int64_t s = 0; s < num_seqs; ++s) {
    const int64_t end = index_at(batch.query_start, s + 1);
    const int64_t kv_len = index_at(batch.kv_len, s);
    if (end < start) check.fail("query_start[", s + 1, "] is ", end, ", less than the one before");
    if (kv_len < end - start)
      check.fail("kv_len[", s, "] is ", kv_len, ", less than the sequence's ", end - start, " rows");
    const int64_t num_blocks = (kv_len + block_len - 1) / block_len;
    if (num_blocks > batch.block_table.cols())
      check.fail("kv_len[", s, "] is ", kv_len, ", more than ", batch.block_table.cols(), " blocks of ",
                 block_len);
    const int64_t first_key = window == 0 ? 0 : std::max<int64_t>(0, kv_len - (end - start) + 1 - window);
    const int64_t first_block = first_key / block_len;
    const ConstTensorView table(batch.block_table.row_data(s) + first_block * 4, DType::kI32,
                                {num_blocks - first_block});
    if (end > start) index_values("attention", "block_table", table, cache.num_blocks);
    start = end;
  }
  if (start != tokens) check.fail("query_start ends at ", start, ", q has ", tokens, " rows");
}

}  // namespace lmdeploy::checks
