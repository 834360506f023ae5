// Packs weights into panels and reads rows back.
#include "lmdeploy/kernels/cpu/packed_weight.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

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
    case DType::kU4G32:
      return kU4G32Unit;
    case DType::kU4G128:
      return kU4G128Unit;
    case DType::kU5G32:
      return kU5G32Unit;
    case DType::kI8G64:
      return kI8G64Unit;
    case DType::kF8G64:
      return kF8G64Unit;
    default:
      break;
  }
  LMD_CHECK(false, to_string(dtype), " has no unit");
}

// Where the integer of a column lies in a row of a plane of `bits` bits.
constexpr int first_bit(int64_t column, int bits) {
  return bits == 8 ? static_cast<int>(column % 8 / 2 * 8) : plane_bit(column, bits);
}
constexpr int64_t word_index(int64_t column, int bits) {
  return bits == 8 ? column / 8 * 2 + column % 2 : column / (32 / bits);
}

uint32_t get_integer(const std::byte* plane, int bits, int64_t lane, int64_t column) {
  uint32_t word = 0;
  std::memcpy(&word, plane + (word_index(column, bits) * kPanelRows + lane) * 4, sizeof(word));
  return (word >> first_bit(column, bits)) & ((1u << bits) - 1);
}

// Eight bytes, each below 16, as the nibbles of a word.
uint32_t nibbles_of(uint64_t bytes) {
  bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ff;
  bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffff;
  return static_cast<uint32_t>(bytes | bytes >> 16);
}
// Bytes 0, 2, 4 and 6 of eight.
uint32_t even_bytes_of(uint64_t bytes) {
  bytes &= 0x00ff00ff00ff00ff;
  bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffff;
  return static_cast<uint32_t>(bytes | bytes >> 16);
}

// One row of a plane of 1, 2 or 4 bits: those from bit kFrom of each q.
template <int kBits, int kFrom>
void put_integers(std::byte* plane, int64_t lane, const uint8_t* q, int64_t columns) {
  constexpr uint64_t kMask = ((1u << kBits) - 1) * 0x0101010101010101;
  constexpr int64_t kWordColumns = 32 / kBits;
  for (int64_t first = 0; first < columns; first += kWordColumns) {
    uint32_t word = 0;
    for (int64_t k = 0; k < kWordColumns; k += 8) {
      uint64_t eight;
      std::memcpy(&eight, q + first + k, sizeof(eight));
      word |= nibbles_of(eight >> kFrom & kMask) << plane_bit(k, kBits);
    }
    std::memcpy(plane + (first / kWordColumns * kPanelRows + lane) * 4, &word, sizeof(word));
  }
}
void put_bytes(std::byte* plane, int64_t lane, const uint8_t* q, int64_t columns) {
  for (int64_t k = 0; k < columns; k += 8) {
    uint64_t eight;
    std::memcpy(&eight, q + k, sizeof(eight));
    const uint32_t even = even_bytes_of(eight), odd = even_bytes_of(eight >> 8);
    std::memcpy(plane + (k / 4 * kPanelRows + lane) * 4, &even, sizeof(even));
    std::memcpy(plane + ((k / 4 + 1) * kPanelRows + lane) * 4, &odd, sizeof(odd));
  }
}

// Where the code of a column lies in a kF8G64Unit.
constexpr int64_t code_offset(int64_t column, int64_t lane) {
  return (column / 2 * kPanelRows + lane) * 2 + 1 - column % 2;
}
bool is_nan_code(int8_t code) { return (code & 0x7f) == 0x7f; }

template <typename T>
void put(std::byte* values, int64_t lane, T value) {
  std::memcpy(values + lane * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}
template <typename T>
T get(const std::byte* values, int64_t lane) {
  T value;
  std::memcpy(&value, values + lane * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

void put_codes(std::byte* unit, const UnitLayout& u, int64_t lane, const QuantBlock& block) {
  bool has_nan = false;
  for (int64_t k = 0; k < u.columns; ++k) {
    const int8_t code = block.q[static_cast<size_t>(k)];
    unit[code_offset(k, lane)] = static_cast<std::byte>(code);
    has_nan |= is_nan_code(code);
  }
  put(unit + u.scale, lane, has_nan ? std::numeric_limits<float>::quiet_NaN() : block.wide_scale);
}

QuantBlock get_codes(const std::byte* unit, const UnitLayout& u, int64_t lane) {
  QuantBlock block{};
  for (int64_t k = 0; k < u.columns; ++k)
    block.q[static_cast<size_t>(k)] = static_cast<int8_t>(unit[code_offset(k, lane)]);
  block.wide_scale = get<float>(unit + u.scale, lane);
  return block;
}

void put_block(std::byte* unit, const UnitLayout& u, const QuantKind& kind, int64_t lane,
               const QuantBlock& block) {
  if (kind.e4m3) return put_codes(unit, u, lane, block);
  std::array<uint8_t, 256> q;
  for (size_t k = 0; k < static_cast<size_t>(u.columns); ++k)
    q[k] = static_cast<uint8_t>(block.q[k] + kind.bias);  // 8 bits: two's complement, no bias
  if (u.low_bits == 8) put_bytes(unit, lane, q.data(), u.columns);
  if (u.low_bits == 4) put_integers<4, 0>(unit, lane, q.data(), u.columns);
  if (u.high_bits == 1) put_integers<1, 4>(unit + u.high, lane, q.data(), u.columns);
  if (u.high_bits == 2) put_integers<2, 4>(unit + u.high, lane, q.data(), u.columns);
  if (kind.has_zero) {
    put(unit + u.scale, lane, block.wide_scale);
    return put(unit + u.zero, lane, static_cast<int16_t>(block.zero));
  }
  if (!kind.k_scales) {
    put(unit + u.scale, lane, block.d);
    if (kind.has_min) put(unit + u.min, lane, block.dmin);
    return;
  }
  put(unit + u.d, lane, block.d);
  if (kind.has_min) put(unit + u.dmin, lane, block.dmin);
  for (int64_t g = 0; g < u.columns / u.group; ++g) {
    unit[u.scale + g * kPanelRows + lane] = static_cast<std::byte>(block.scales[static_cast<size_t>(g)]);
    if (kind.has_min)
      unit[u.min + g * kPanelRows + lane] = static_cast<std::byte>(block.mins[static_cast<size_t>(g)]);
  }
}

QuantBlock get_block(const std::byte* unit, const UnitLayout& u, const QuantKind& kind, int64_t lane) {
  if (kind.e4m3) return get_codes(unit, u, lane);
  QuantBlock block{};
  for (int64_t k = 0; k < u.columns; ++k) {
    uint32_t stored = get_integer(unit, u.low_bits, lane, k);
    if (u.high_bits > 0) stored |= get_integer(unit + u.high, u.high_bits, lane, k) << u.low_bits;
    block.q[static_cast<size_t>(k)] = static_cast<int8_t>(static_cast<int>(stored) - kind.bias);
  }
  if (kind.has_zero) {
    block.wide_scale = get<float>(unit + u.scale, lane);
    block.zero = get<int16_t>(unit + u.zero, lane);
    return block;
  }
  block.d = get<F16>(unit + (kind.k_scales ? u.d : u.scale), lane);
  if (kind.has_min) block.dmin = get<F16>(unit + (kind.k_scales ? u.dmin : u.min), lane);
  for (int64_t g = 0; kind.k_scales && g < u.columns / u.group; ++g) {
    block.scales[static_cast<size_t>(g)] = static_cast<int8_t>(unit[u.scale + g * kPanelRows + lane]);
    if (kind.has_min)
      block.mins[static_cast<size_t>(g)] = static_cast<uint8_t>(unit[u.min + g * kPanelRows + lane]);
  }
  return block;
}

// Columns of a unit of plain elements.
constexpr int64_t columns_together(DType dtype) { return dtype == DType::kBF16 ? 2 : 1; }
// Where an element lies in a panel of them, in elements.
constexpr int64_t plain_index(int64_t column, int64_t lane, int64_t together) {
  return (column / together * kPanelRows + lane) * together + column % together;
}

// Elements of the size of T; some columns at a time, which the cache holds.
template <typename T, int64_t kUnitColumns = 1>
void put_plain_rows(std::byte* panel, ConstTensorView part, int64_t first_row, int64_t rows) {
  constexpr int64_t kTogether = 64;
  for (int64_t first = 0; first < part.cols(); first += kTogether) {
    const int64_t end = std::min(part.cols(), first + kTogether);
    for (int64_t lane = 0; lane < rows; ++lane) {
      const std::byte* row = part.row_data(first_row + lane);
      for (int64_t k = first; k < end; ++k) put(panel, plain_index(k, lane, kUnitColumns), get<T>(row, k));
    }
  }
}

void pack_panel(std::byte* panel, int64_t panel_bytes, ConstTensorView part, int64_t first_row) {
  const int64_t rows = std::min(kPanelRows, part.rows() - first_row);
  if (rows < kPanelRows || part.cols() % columns_together(part.dtype()) != 0)
    std::memset(panel, 0, static_cast<size_t>(panel_bytes));
  if (part.dtype() == DType::kBF16) return put_plain_rows<uint16_t, 2>(panel, part, first_row, rows);
  if (part.dtype() == DType::kF32) return put_plain_rows<uint32_t>(panel, part, first_row, rows);
  if (!is_quantized(part.dtype())) return put_plain_rows<uint16_t>(panel, part, first_row, rows);
  const UnitLayout& u = unit_layout(part.dtype());
  const QuantKind& kind = quant_kind(part.dtype());
  for (int64_t lane = 0; lane < rows; ++lane) {
    const std::byte* row = part.row_data(first_row + lane);
    for (int64_t k = 0; k < part.cols(); k += u.columns)
      put_block(panel + k / u.columns * u.bytes, u, kind, lane,
                read_quant_block(part.dtype(), row + row_bytes(part.dtype(), k)));
  }
}

int64_t bytes_of_panel(DType dtype, int64_t cols) {
  if (!is_quantized(dtype)) {
    const int64_t together = columns_together(dtype);
    return kPanelRows * row_bytes(dtype, (cols + together - 1) / together * together);
  }
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
    case DType::kU4G32:
      return Kind::kU4G32;
    case DType::kU4G128:
      return Kind::kU4G128;
    case DType::kU5G32:
      return Kind::kU5G32;
    case DType::kI8G64:
      return Kind::kI8G64;
    case DType::kF8G64:
      return Kind::kF8G64;
    default:
      break;
  }
  throw Error(ErrorCode::kUnsupported,
              cat("the CPU back end has no kernels for ", dtype, " weights; convert them to f32"));
}

CpuWeight::CpuWeight(std::span<const ConstTensorView> parts, int64_t rows,
                     std::span<const int32_t> column_order, const Rounding& rounding, ThreadPool& threads)
    : PackedWeight(rows, parts[0].dim(1), column_order) {
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
    token_forms_.add(parts_.back().kind, rounding);
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
    dequantize(after->dtype, panel + plain_index(k, lane, columns_together(after->dtype)) * element_bytes,
               dst + k, 1);
}

}  // namespace lmdeploy::cpu
