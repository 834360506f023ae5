// Shape and dtype checks of every op; see checks.h.
#include "lmdeploy/kernels/checks.h"

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
    if (l.num_kv_heads <= 0 || l.head_dim <= 0 || l.block_len <= 0 || cache.num_blocks < 0)
      fail("the KV cache has ", cache.num_blocks, " blocks of ", l.block_len, " tokens, ", l.num_kv_heads,
           " heads of ", l.head_dim);
    if (layer < 0 || layer >= l.num_layers) fail("layer ", layer, " is not in [0, ", l.num_layers, ")");
  }

 private:
  const char* op_;
};

int64_t index_at(ConstTensorView t, int64_t i) {
  int64_t wide = 0;
  int32_t narrow = 0;
  if (t.dtype() == DType::kI64) {
    std::memcpy(&wide, t.data() + i * 8, sizeof(wide));
    return wide;
  }
  std::memcpy(&narrow, t.data() + i * 4, sizeof(narrow));
  return narrow;
}

}  // namespace

void embedding(const Kernels& kernels, ConstTensorView out, ConstTensorView ids, const PackedWeight& table) {
  const OpCheck check("embedding");
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

void rms_norm(const Kernels& kernels, ConstTensorView out, ConstTensorView x, ConstTensorView weight) {
  const OpCheck check("rms_norm");
  check.activation("x", kernels, x);
  check.activation("out", kernels, out, x.shape());
  check.tensor("weight", weight, DType::kF32, {x.cols()});
}

void add_rms_norm(const Kernels& kernels, ConstTensorView out, ConstTensorView residual, ConstTensorView x,
                  ConstTensorView weight) {
  const OpCheck check("add_rms_norm");
  check.activation("x", kernels, x);
  check.activation("residual", kernels, residual, x.shape());
  check.activation("out", kernels, out, x.shape());
  check.tensor("weight", weight, DType::kF32, {x.cols()});
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
  if (table.cols() % 2 != 0 || table.cols() > options.head_dim)
    check.fail("table has shape ", table.shape(), ": rotary_dim must be even and at most head_dim ",
               options.head_dim);
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
  check.activation("out", kernels, out, q.shape());
  check.disjoint("out", out, "q", q);
  check.indices("kv_len", batch.kv_len, DType::kI32);
  const int64_t num_seqs = batch.kv_len.cols();
  check.tensor("query_start", batch.query_start, DType::kI32, {num_seqs + 1});
  if (batch.block_table.rank() != 2)
    check.fail("block_table has shape ", batch.block_table.shape(), ", expected two dimensions");
  check.tensor("block_table", batch.block_table, DType::kI32, {num_seqs, batch.block_table.dim(1)});
}

void silu_mul(const Kernels& kernels, ConstTensorView out, ConstTensorView x) {
  const OpCheck check("silu_mul");
  check.activation("out", kernels, out);
  check.activation("x", kernels, x, {out.dim(0), 2 * out.cols()});
}

void add(const Kernels& kernels, ConstTensorView out, ConstTensorView a, ConstTensorView b) {
  const OpCheck check("add");
  check.activation("out", kernels, out);
  check.activation("a", kernels, a, out.shape());
  check.activation("b", kernels, b, out.shape());
}

void gather_rows(const Kernels& kernels, ConstTensorView out, ConstTensorView x, ConstTensorView rows) {
  const OpCheck check("gather_rows");
  check.indices("rows", rows, DType::kI32);
  check.activation("x", kernels, x);
  check.activation("out", kernels, out, {rows.cols(), x.cols()});
  check.disjoint("out", out, "x", x);
}

int64_t weight_parts(std::span<const ConstTensorView> parts) {
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
  return rows;
}

void index_values(const char* op, const char* tensor, ConstTensorView values, int64_t limit) {
  for (int64_t i = 0; i < values.cols(); ++i) {
    const int64_t value = index_at(values, i);
    if (value < 0 || value >= limit)
      OpCheck(op).fail(tensor, "[", i, "] is ", value, ", expected [0, ", limit, ")");
  }
}

void attention_values(const KvCacheView& cache, const AttentionBatch& batch, int64_t tokens) {
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
    const ConstTensorView table(batch.block_table.row_data(s), DType::kI32, {num_blocks});
    if (end > start) index_values("attention", "block_table", table, cache.num_blocks);
    start = end;
  }
  if (start != tokens) check.fail("query_start ends at ", start, ", q has ", tokens, " rows");
}

}  // namespace lmdeploy::checks
