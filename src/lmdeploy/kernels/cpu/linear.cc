// Kernels::linear and embedding on the CPU: splits the panels of a weight among the threads.
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

}  // namespace

void CpuKernels::do_embedding(TensorView out, ConstTensorView ids, const PackedWeight& table) const {
  const CpuWeight& weight = cpu_weight("embedding", table);
  checks::index_values("embedding", "ids", ids, table.rows());
  for_rows(out.rows(), out.cols(),
           [&](int64_t t) { weight.read_row(ids.row<int32_t>(0)[t], out.row<float>(t)); });
}

PackedTokens CpuKernels::plan_tokens(const CpuWeight& weight, int64_t tokens) const {
  bool plain = false, shifted = false, sums = false;
  for (const CpuWeight::Part& part : weight.parts()) {
    (has_shifted_columns(part.kind) ? shifted : plain) = true;
    sums |= needs_sums(part.kind);
  }
  const int64_t size = tokens * weight.cols();
  float* memory = shared_scratch_.floats(2 * size + size / kSumGroup);
  return {.x = plain ? memory : nullptr,
          .shifted_x = shifted ? memory + size : nullptr,
          .sums = sums ? memory + 2 * size : nullptr,
          .tokens = tokens,
          .cols = weight.cols(),
          .num_tiles = (tokens + ops_.token_tile - 1) / ops_.token_tile};
}

void CpuKernels::do_linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
                           std::optional<ConstTensorView> bias) const {
  const CpuWeight& w = cpu_weight("linear", weight);
  const int64_t tokens = x.rows();
  const int64_t cols = x.cols();
  const PackedTokens packed = plan_tokens(w, tokens);
  const auto stride = [](const auto& t) {
    return t.row_stride_bytes() / static_cast<int64_t>(sizeof(float));
  };
  constexpr int64_t kPackElements = 65536;  // a thread's share that is worth waking it
  for_pieces(packed.num_tiles, kPackElements / (cols * ops_.token_tile) + 1,
             [&](int, int64_t begin, int64_t end) {
               ops_.pack_tokens(packed, x.row<float>(0), stride(x), begin, end);
             });
  for_pieces(w.num_panels(), 1, [&](int worker, int64_t begin, int64_t end) {
    float* scratch = thread_scratch_[static_cast<size_t>(worker)].floats(kLinearScratch);
    for_parts(w, begin, end, [&](const CpuWeight::Part& part, int64_t panel, int64_t num_panels) {
      const int64_t row = panel * kPanelRows;
      ops_.linear({.kind = part.kind,
                   .panels = w.panels(part) + panel * part.panel_bytes,
                   .panel_bytes = part.panel_bytes,
                   .num_panels = num_panels,
                   .tokens = packed,
                   .bias = bias ? bias->row<float>(0) + part.first_row + row : nullptr,
                   .out = out.row<float>(0) + part.first_row + row,
                   .out_stride = stride(out),
                   .rows = std::min(part.rows - row, num_panels * kPanelRows),
                   .scratch = scratch});
    });
  });
}

}  // namespace lmdeploy::cpu
