// Kernels::linear, expert_linear and embedding on the CPU: splits the panels of weights among the threads.
#include <algorithm>

#include "lmdeploy/kernels/checks.h"
#include "lmdeploy/kernels/cpu/cpu_kernels.h"
#include "lmdeploy/kernels/cpu/panel_layout.h"

namespace lmdeploy::cpu {
namespace {

// body(part, first panel of the part, number of panels) for the panels [begin, end) of all parts together.
template <typename Body>
void for_parts(const CpuWeight& weight, int64_t begin, int64_t end, const Body& body) {
  int64_t first = 0;  // panel of the whole weight at which the part begins
  for (const CpuWeight::Part& part : weight.parts()) {
    const int64_t from = std::max(begin, first);
    const int64_t to = std::min(end, first + part.num_panels);
    if (from < to) body(part, from - first, to - from);
    first += part.num_panels;
  }
}

// The rows [first, first + count) as tokens of their own.
PackedTokens slice_tokens(const PackedTokens& all, int64_t first, int64_t count, const TileForm& form) {
  const auto at = [](auto* p, int64_t values) { return p == nullptr ? nullptr : p + values; };
  const int64_t groups = first * (all.cols / kSumGroup);
  return {.x = at(all.x, first * all.cols),
          .shifted_x = at(all.shifted_x, first * all.cols),
          .sums = at(all.sums, groups),
          .q = at(all.q, first * all.cols),
          .q_scales = at(all.q_scales, 2 * groups),
          .q_sums = at(all.q_sums, 2 * groups),
          .pairs = at(all.pairs, first * all.num_pairs()),
          .tokens = count,
          .cols = all.cols,
          .num_tiles = (count + form.tokens - 1) / form.tokens,
          .q_unsigned = form.q_unsigned,
          .decodes_once = form.decodes_once};
}

template <typename View>
int64_t row_floats(const View& view) {
  return view.row_stride_bytes() / static_cast<int64_t>(sizeof(float));
}

}  // namespace

int64_t CpuKernels::pack_grain(int64_t cols) const {
  constexpr int64_t kPackElements = 8192;  // a thread's share that is worth waking it
  return kPackElements / (cols * ops_.token_tile) + 1;
}

// Few tokens take one panel at a time, and few panels leave threads without work.
int64_t CpuKernels::piece_panels(int64_t num_panels, int64_t tokens) const {
  const int64_t enough = 3 * kPanelsTogether * threads_->num_threads();
  return tokens > 2 && num_panels >= enough ? kPanelsTogether : 1;
}

void CpuKernels::do_embedding(TensorView out, ConstTensorView ids, const PackedWeight& table) const {
  const CpuWeight& weight = cpu_weight("embedding", table);
  checks::index_values("embedding", "ids", ids, table.rows());
  for_rows(out.rows(), out.cols(),
           [&](int64_t t) { weight.read_row(ids.row<int32_t>(0)[t], out.row<float>(t)); });
}

// out[t, k] = x[t, order[k]], or x[t, k] where there is none.
void CpuKernels::order_rows(const TensorView& out, ConstTensorView x, std::span<const int32_t> order) const {
  for_rows(x.rows(), x.cols(), [&](int64_t t) {
    const float* from = x.row<float>(t);
    float* to = out.row<float>(t);
    if (order.empty()) std::copy_n(from, x.cols(), to);
    for (size_t k = 0; k < order.size(); ++k) to[k] = from[order[k]];
  });
}

ConstTensorView CpuKernels::in_column_order(ConstTensorView x, const PackedWeight& weight) const {
  if (weight.column_order().empty()) return x;
  const TensorView ordered(reinterpret_cast<std::byte*>(ordered_x_.floats(x.rows() * x.cols())), DType::kF32,
                           {x.rows(), x.cols()});
  order_rows(ordered, x, weight.column_order());
  return ordered;
}

ConstTensorView CpuKernels::in_column_order(ConstTensorView x, std::span<const PackedWeight* const> experts,
                                            ConstTensorView expert_start) const {
  const auto in_order = [](const PackedWeight* weight) { return weight->column_order().empty(); };
  if (std::all_of(experts.begin(), experts.end(), in_order)) return x;
  const TensorView ordered(reinterpret_cast<std::byte*>(ordered_x_.floats(x.rows() * x.cols())), DType::kF32,
                           {x.rows(), x.cols()});
  const auto* start = expert_start.row<int32_t>(0);
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t count = start[e + 1] - start[e];
    if (count > 0)
      order_rows(ordered.slice_rows(start[e], count), x.slice_rows(start[e], count),
                 experts[e]->column_order());
  }
  return ordered;
}

TileForm CpuKernels::tile_form(const TokenForms& forms, int64_t tokens) const {
  if (!forms.int8) return {.tokens = forms.bf16 ? ops_.token_tile : ops_.float_tile};
  if (tokens < forms.decode_once_tokens) return {.tokens = ops_.token_tile};
  return {.tokens = ops_.decoded_tile, .decodes_once = true, .q_unsigned = ops_.unsigned_q};
}

PackedTokens CpuKernels::plan_tokens(const TokenForms& forms, int64_t tokens, int64_t cols) const {
  const int64_t size = tokens * cols;
  const TileForm tile = tile_form(forms, tokens);
  const int64_t groups = tokens * (cols / kSumGroup);
  const int64_t num_pairs = tokens * ((cols + 1) / 2);
  float* next = shared_scratch_.floats(2 * size + size / 4 + 5 * groups + num_pairs);
  const auto take = [&next](bool wanted, int64_t words) {
    float* const taken = wanted ? next : nullptr;
    if (wanted) next += words;
    return taken;
  };
  return {.x = take(forms.plain, size),
          .shifted_x = take(forms.shifted, size),
          .sums = take(forms.sums, groups),
          .q = reinterpret_cast<int8_t*>(take(forms.int8, size / 4)),
          .q_scales = take(forms.int8, 2 * groups),
          .q_sums = reinterpret_cast<int32_t*>(take(forms.int8, 2 * groups)),
          .pairs = reinterpret_cast<uint32_t*>(take(forms.bf16, num_pairs)),
          .tokens = tokens,
          .cols = cols,
          .num_tiles = (tokens + tile.tokens - 1) / tile.tokens,
          .q_unsigned = tile.q_unsigned,
          .decodes_once = tile.decodes_once};
}

void CpuKernels::run_panels(int worker, const CpuWeight& weight, int64_t begin, int64_t end,
                            const PackedTokens& tokens, const float* bias, float* out,
                            int64_t out_stride) const {
  std::byte* const memory =
      tokens.decodes_once ? thread_scratch_[static_cast<size_t>(worker)].bytes(decoded_scratch(tokens.cols))
                          : nullptr;
  for_parts(weight, begin, end, [&](const CpuWeight::Part& part, int64_t panel, int64_t num_panels) {
    const int64_t row = panel * kPanelRows;
    product_of(part.kind)({.kind = part.kind,
                           .panels = weight.panels(part) + panel * part.panel_bytes,
                           .panel_bytes = part.panel_bytes,
                           .num_panels = num_panels,
                           .tokens = tokens,
                           .bias = bias == nullptr ? nullptr : bias + part.first_row + row,
                           .out = out + part.first_row + row,
                           .out_stride = out_stride,
                           .rows = std::min(part.rows - row, num_panels * kPanelRows),
                           .scratch = memory});
  });
}

void CpuKernels::do_linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
                           std::optional<ConstTensorView> bias) const {
  const CpuWeight& w = cpu_weight("linear", weight);
  x = in_column_order(x, weight);
  const PackedTokens packed = plan_tokens(w.token_forms(), x.rows(), x.cols());
  for_pieces(packed.num_tiles, pack_grain(x.cols()), [&](int, int64_t begin, int64_t end) {
    ops_.pack_tokens(packed, x.row<float>(0), row_floats(x), begin, end);
  });
  const int64_t unit = piece_panels(w.num_panels(), x.rows());
  for_pieces((w.num_panels() + unit - 1) / unit, 1, [&](int worker, int64_t begin, int64_t end) {
    run_panels(worker, w, begin * unit, std::min(end * unit, w.num_panels()), packed,
               bias ? bias->row<float>(0) : nullptr, out.row<float>(0), row_floats(out));
  });
}

// A task's tokens are one run of rows of x, packed as linear() would: tiles of other experts change no bit.
void CpuKernels::plan_experts(ConstTensorView x, std::span<const PackedWeight* const> experts,
                              ConstTensorView expert_start,
                              const std::optional<ConstTensorView>& bias) const {
  constexpr int64_t kDecodeCost = 4;  // of a panel, in the tokens that it is multiplied with
  const auto* start = expert_start.row<int32_t>(0);
  std::vector<ExpertTask>& tasks = expert_tasks_;
  tasks.clear();
  TokenForms forms;
  for (size_t e = 0; e < experts.size(); ++e)
    if (start[e + 1] > start[e]) forms.add(cpu_weight("expert_linear", *experts[e]).token_forms());
  const PackedTokens all = plan_tokens(forms, x.rows(), x.cols());
  int64_t tiles = 0, cost = 0;
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t rows = start[e + 1] - start[e];
    if (rows == 0) continue;
    tasks.push_back({.weight = &cpu_weight("expert_linear", *experts[e]),
                     .first_row = start[e],
                     .tokens = slice_tokens(all, start[e], rows, tile_form(forms, rows)),
                     .bias = bias ? bias->row<float>(static_cast<int64_t>(e)) : nullptr,
                     .tiles_before = tiles,
                     .cost_before = cost,
                     .panel_cost = kDecodeCost + rows});
    tiles += tasks.back().tokens.num_tiles;
    cost = tasks.back().end_cost();
  }
}

void CpuKernels::do_expert_linear(TensorView out, ConstTensorView x,
                                  std::span<const PackedWeight* const> experts, ConstTensorView expert_start,
                                  std::optional<ConstTensorView> bias) const {
  checks::expert_values(expert_start, x.rows());
  x = in_column_order(x, experts, expert_start);
  plan_experts(x, experts, expert_start, bias);
  const std::vector<ExpertTask>& tasks = expert_tasks_;
  const int64_t num_tiles = tasks.back().tiles_before + tasks.back().tokens.num_tiles;
  for_pieces(num_tiles, pack_grain(x.cols()), [&](int, int64_t begin, int64_t end) {
    for (const ExpertTask& task : tasks) {
      const int64_t from = std::max(begin - task.tiles_before, int64_t{0});
      const int64_t to = std::min(end - task.tiles_before, task.tokens.num_tiles);
      if (from < to) ops_.pack_tokens(task.tokens, x.row<float>(task.first_row), row_floats(x), from, to);
    }
  });
  // Pieces of equal cost; a panel belongs to the piece in which its cost begins.
  for_pieces(tasks.back().end_cost(), 1, [&](int worker, int64_t begin, int64_t end) {
    for (const ExpertTask& task : tasks) {
      const auto panel_at = [&task](int64_t cost) {
        const int64_t panel = (cost - task.cost_before + task.panel_cost - 1) / task.panel_cost;
        return std::clamp(panel, int64_t{0}, task.weight->num_panels());
      };
      const int64_t from = panel_at(begin), to = panel_at(end);
      if (from < to)
        run_panels(worker, *task.weight, from, to, task.tokens, task.bias, out.row<float>(task.first_row),
                   row_floats(out));
    }
  });
}

}  // namespace lmdeploy::cpu
