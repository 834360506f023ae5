// Packs weights into panels and reads rows back.
#include "lmdeploy/kernels/cpu/packed_weight.h"

#include <algorithm>
#include <cstring>

#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/cpu/panel_layout.h"
#include "lmdeploy/kernels/quant_block.h"

namespace lmdeploy::cpu {
namespace {

const UnitLayout& unit_layout(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return kQ4_0Unit;
    case DType::kQ4_1:
      return kQ4_1Unit;
    case DType::kQ5_0:
      return kQ5_0Unit;
    case DType::kQ5_1:
      return kQ5_1Unit;
    case DType::kQ8_0:
      return kQ8_0Unit;
    case DType::kQ4_K:
      return kQ4_KUnit;
    case DType::kQ5_K:
      return kQ5_KUnit;
    case DType::kQ6_K:
      return kQ6_KUnit;
    default:
      break;
  }
  LMD_CHECK(false, to_string(dtype), " has no unit");
}

// Integers of `bits` bits of one row of a plane.
class PlaneRow {
 public:
  PlaneRow(std::byte* plane, int bits, int64_t lane) : plane_(plane), bits_(bits), lane_(lane) {}

  // The plane must hold 0 there.
  void put(int64_t column, uint32_t value) const {
    const uint32_t word = read(column) | (value << first_bit(column));
    std::memcpy(address(column), &word, sizeof(word));
  }
  uint32_t get(int64_t column) const { return (read(column) >> first_bit(column)) & ((1u << bits_) - 1); }

 private:
  int first_bit(int64_t column) const {
    return bits_ == 8 ? static_cast<int>(column % 8 / 2 * 8) : plane_bit(column, bits_);
  }
  std::byte* address(int64_t column) const {
    const int64_t word = bits_ == 8 ? column / 8 * 2 + column % 2 : column / (32 / bits_);
    return plane_ + (word * kPanelRows + lane_) * 4;
  }
  uint32_t read(int64_t column) const {
    uint32_t word = 0;
    std::memcpy(&word, address(column), sizeof(word));
    return word;
  }

  std::byte* plane_;
  int bits_;
  int64_t lane_;
};

void put_f16(std::byte* values, int64_t lane, F16 value) {
  std::memcpy(values + lane * 2, &value, sizeof(value));
}
F16 get_f16(const std::byte* values, int64_t lane) {
  F16 value;
  std::memcpy(&value, values + lane * 2, sizeof(value));
  return value;
}

void put_block(std::byte* unit, const UnitLayout& u, const QuantKind& kind, int64_t lane,
               const QuantBlock& block) {
  const PlaneRow low(unit, u.low_bits, lane);
  const PlaneRow high(unit + std::max<int64_t>(0, u.high), std::max(1, u.high_bits), lane);
  const uint32_t low_mask = (1u << u.low_bits) - 1;
  for (int64_t k = 0; k < u.columns; ++k) {
    const auto q = static_cast<uint32_t>(block.q[static_cast<size_t>(k)] + kind.bias);
    low.put(k, q & low_mask);  // Q8_0: two's complement, no bias
    if (u.high_bits > 0) high.put(k, q >> u.low_bits);
  }
  if (!kind.k_scales) {
    put_f16(unit + u.scale, lane, block.d);
    if (kind.has_min) put_f16(unit + u.min, lane, block.dmin);
    return;
  }
  put_f16(unit + u.d, lane, block.d);
  if (kind.has_min) put_f16(unit + u.dmin, lane, block.dmin);
  for (int64_t g = 0; g < u.columns / u.group; ++g) {
    unit[u.scale + g * kPanelRows + lane] = static_cast<std::byte>(block.scales[static_cast<size_t>(g)]);
    if (kind.has_min)
      unit[u.min + g * kPanelRows + lane] = static_cast<std::byte>(block.mins[static_cast<size_t>(g)]);
  }
}

QuantBlock get_block(const std::byte* unit, const UnitLayout& u, const QuantKind& kind, int64_t lane) {
  auto* planes = const_cast<std::byte*>(unit);  // PlaneRow::get only reads
  const PlaneRow low(planes, u.low_bits, lane);
  const PlaneRow high(planes + std::max<int64_t>(0, u.high), std::max(1, u.high_bits), lane);
  QuantBlock block{};
  for (int64_t k = 0; k < u.columns; ++k) {
    const uint32_t stored = low.get(k) | (u.high_bits > 0 ? high.get(k) << u.low_bits : 0);
    block.q[static_cast<size_t>(k)] = static_cast<int8_t>(static_cast<int>(stored) - kind.bias);
  }
  block.d = get_f16(unit + (kind.k_scales ? u.d : u.scale), lane);
  if (kind.has_min) block.dmin = get_f16(unit + (kind.k_scales ? u.dmin : u.min), lane);
  for (int64_t g = 0; kind.k_scales && g < u.columns / u.group; ++g) {
    block.scales[static_cast<size_t>(g)] = static_cast<int8_t>(unit[u.scale + g * kPanelRows + lane]);
    if (kind.has_min)
      block.mins[static_cast<size_t>(g)] = static_cast<uint8_t>(unit[u.min + g * kPanelRows + lane]);
  }
  return block;
}

// panel[k][lane] = row[k]
void put_plain_row(std::byte* panel, int64_t element_bytes, int64_t lane, const std::byte* row,
                   int64_t cols) {
  for (int64_t k = 0; k < cols; ++k)
    std::memcpy(panel + (k * kPanelRows + lane) * element_bytes, row + k * element_bytes,
                static_cast<size_t>(element_bytes));
}

void pack_panel(std::byte* panel, int64_t panel_bytes, ConstTensorView part, int64_t first_row) {
  std::memset(panel, 0, static_cast<size_t>(panel_bytes));
  const int64_t rows = std::min(kPanelRows, part.rows() - first_row);
  for (int64_t lane = 0; lane < rows; ++lane) {
    const std::byte* row = part.row_data(first_row + lane);
    if (!is_quantized(part.dtype())) {
      put_plain_row(panel, block_bytes(part.dtype()), lane, row, part.cols());
      continue;
    }
    const UnitLayout& u = unit_layout(part.dtype());
    const QuantKind& kind = quant_kind(part.dtype());
    for (int64_t k = 0; k < part.cols(); k += u.columns)
      put_block(panel + k / u.columns * u.bytes, u, kind, lane,
                read_quant_block(part.dtype(), row + row_bytes(part.dtype(), k)));
  }
}

int64_t bytes_of_panel(DType dtype, int64_t cols) {
  if (!is_quantized(dtype)) return kPanelRows * row_bytes(dtype, cols);
  const UnitLayout& u = unit_layout(dtype);
  return cols / u.columns * u.bytes;
}

void read_quantized_row(DType dtype, const std::byte* panel, int64_t lane, float* dst, int64_t cols) {
  const UnitLayout& u = unit_layout(dtype);
  const QuantKind& kind = quant_kind(dtype);
  for (int64_t first = 0; first < cols; first += u.columns) {
    const QuantBlock block = get_block(panel + first / u.columns * u.bytes, u, kind, lane);
    dequantize_block(kind, block, u.columns, dst + first);
  }
}

}  // namespace

Kind kind_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Kind::kF32;
    case DType::kF16:
      return Kind::kF16;
    case DType::kBF16:
      return Kind::kBF16;
    case DType::kQ4_0:
      return Kind::kQ4_0;
    case DType::kQ4_1:
      return Kind::kQ4_1;
    case DType::kQ5_0:
      return Kind::kQ5_0;
    case DType::kQ5_1:
      return Kind::kQ5_1;
    case DType::kQ8_0:
      return Kind::kQ8_0;
    case DType::kQ4_K:
      return Kind::kQ4_K;
    case DType::kQ5_K:
      return Kind::kQ5_K;
    case DType::kQ6_K:
      return Kind::kQ6_K;
    default:
      break;
  }
  throw Error(ErrorCode::kUnsupported,
              cat("the CPU back end has no kernels for ", dtype, " weights; convert them to f32"));
}

CpuWeight::CpuWeight(std::span<const ConstTensorView> parts, int64_t rows, bool in_int8, ThreadPool& threads)
    : PackedWeight(rows, parts[0].dim(1)) {
  int64_t bytes = 0;
  int64_t first_row = 0;
  for (const ConstTensorView& part : parts) {
    const int64_t num_panels = (part.dim(0) + kPanelRows - 1) / kPanelRows;
    const int64_t panel_bytes = bytes_of_panel(part.dtype(), cols());
    parts_.push_back({.kind = kind_of(part.dtype()),
                      .dtype = part.dtype(),
                      .first_row = first_row,
                      .rows = part.dim(0),
                      .num_panels = num_panels,
                      .panel_bytes = panel_bytes,
                      .offset = bytes});
    token_forms_.add(parts_.back().kind, in_int8);
    first_row += part.dim(0);
    num_panels_ += num_panels;
    bytes += (num_panels * panel_bytes + 63) / 64 * 64;  // parts begin on a cache line
  }
  buffer_ = Buffer(static_cast<size_t>(bytes), host_allocator());
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& p = parts_[i];
    threads.parallel_for(p.num_panels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel)
        pack_panel(buffer_.data() + p.offset + panel * p.panel_bytes, p.panel_bytes, parts[i],
                   panel * kPanelRows);
    });
  }
}

void CpuWeight::read_row(int64_t row, float* dst) const {
  const auto after =
      std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) { return row < p.first_row + p.rows; });
  const int64_t at = row - after->first_row;
  const std::byte* panel = panels(*after) + at / kPanelRows * after->panel_bytes;
  const int64_t lane = at % kPanelRows;
  if (is_quantized(after->dtype)) return read_quantized_row(after->dtype, panel, lane, dst, cols());
  const int64_t element_bytes = block_bytes(after->dtype);
  for (int64_t k = 0; k < cols(); ++k)
    dequantize(after->dtype, panel + (k * kPanelRows + lane) * element_bytes, dst + k, 1);
}

}  // namespace lmdeploy::cpu
