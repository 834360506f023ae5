// The stored tensors of one quantised module, and the checks that every format makes of them.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/tensor.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/derived_checkpoint.h"
#include "lmdeploy/formats/quant/quant_config.h"

namespace lmdeploy {

/// Tensors by name. The checkpoint must outlive it.
class TensorIndex {
 public:
  explicit TensorIndex(const Checkpoint& checkpoint);
  std::optional<size_t> find(const std::string& name) const;
  const TensorInfo& info(size_t tensor) const { return checkpoint_.tensors()[tensor]; }
  const Checkpoint& checkpoint() const { return checkpoint_; }

 private:
  const Checkpoint& checkpoint_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

class QuantModule {
 public:
  /// `prefix`: what comes before the suffixes, e.g. "model.layers.0.mlp.up_proj".
  QuantModule(const TensorIndex& index, std::string prefix) : index_(index), prefix_(std::move(prefix)) {}

  const std::string& prefix() const { return prefix_; }
  /// The tensor PREFIX + suffix; remembered as a source of the recipe.
  std::optional<size_t> find(std::string_view suffix);
  /// Throws Error(kInvalidData) when it is missing.
  size_t require(std::string_view suffix);
  const TensorInfo& info(size_t tensor) const { return index_.info(tensor); }
  /// For the few values that decide about shapes.
  ConstTensorView view(size_t tensor) const { return index_.checkpoint().tensor(tensor); }
  /// Throws Error(kInvalidData) saying what was found and what was expected.
  void expect(size_t tensor, std::initializer_list<DType> dtypes, const Shape& shape) const;
  /// So many dimensions, none of them 0.
  void expect_rank(size_t tensor, int rank) const;
  /// The number of inputs that share a scale, when the `num_inputs` of `tensor` have `groups` of them. Throws
  /// Error(kInvalidData) unless they divide and are of a size the config names.
  int64_t group_size(size_t tensor, int64_t num_inputs, int64_t groups, const QuantConfig& config) const;
  [[noreturn]] void fail(size_t tensor, const std::string& what,
                         ErrorCode code = ErrorCode::kInvalidData) const;
  /// A tensor NAME made from what was found.
  Recipe recipe(size_t main, const std::string& name, DType dtype, const Shape& shape,
                std::function<void(const Checkpoint&, std::byte*)> make) const;

 private:
  const TensorIndex& index_;
  std::string prefix_;
  std::vector<size_t> sources_;
};

/// Integers of `bits` bits (8: signed) in `group_size` inputs of a row of `num_inputs`: the kind that holds
/// them as they are, or f32.
DType integer_kind(int bits, int64_t group_size, int64_t num_inputs);

/// How the columns of integers in groups are kept.
struct IntegerColumns {
  DType dtype;
  ColumnOrder order = nullptr;       // inputs sorted by group
  std::vector<int32_t> groups = {};  // of each input, where f32 keeps them as they are
  /// That column k stands for.
  int64_t input(size_t k) const { return order ? (*order)[k] : static_cast<int64_t>(k); }
};

/// One row of integers: scale * (q - zero), scale and zero for each run of `group_size` inputs.
struct IntegerRow {
  std::vector<int16_t> q;
  std::vector<int32_t> zeros;
  std::vector<float> scales;

  IntegerRow(int64_t num_inputs, int64_t num_groups)
      : q(static_cast<size_t>(num_inputs)),
        zeros(static_cast<size_t>(num_groups)),
        scales(static_cast<size_t>(num_groups)) {}
  /// As a row of `dtype`, one that integer_kind() gave.
  void write(DType dtype, int64_t group_size, std::byte* out) const;
  /// As a row of columns.dtype.
  void write(const IntegerColumns& columns, int64_t group_size, std::byte* out) const;
};

constexpr std::initializer_list<DType> kScaleTypes = {DType::kF32, DType::kF16, DType::kBF16};

/// The values of a float tensor, widened.
std::vector<float> floats_of(ConstTensorView tensor);
/// Integer n of a stream of `bits`-bit integers in 32-bit words, lowest bits first; the words are `stride`
/// apart.
inline int packed_integer(const uint32_t* words, int64_t stride, int64_t n, int bits) {
  const int64_t bit = n * bits;
  const int shift = static_cast<int>(bit % 32);
  uint32_t value = words[bit / 32 * stride] >> shift;
  if (shift + bits > 32) value |= words[(bit / 32 + 1) * stride] << (32 - shift);
  return static_cast<int>(value & ((1u << bits) - 1));
}
/// Of a module with `groups` groups of `group_size` of its inputs, g_idx [inputs] saying which is whose
/// ("act-order"); without it input k is of group k / group_size. Throws Error(kInvalidData) for a group that
/// is not from 0 to groups - 1.
IntegerColumns integer_columns(const QuantModule& module, std::optional<size_t> g_idx, int bits,
                               int64_t groups, int64_t group_size);

// One function per format: the recipe of the module whose tensor with the format's suffix is there.
Recipe awq_recipe(QuantModule module, const QuantConfig& config);         // .qweight
Recipe gptq_recipe(QuantModule module, const QuantConfig& config);        // .qweight
Recipe compressed_recipe(QuantModule module, const QuantConfig& config);  // .weight_packed
Recipe scaled_recipe(QuantModule module, const QuantConfig& config);      // .weight of int8 or fp8
Recipe mxfp4_recipe(QuantModule module, const QuantConfig& config);       // _blocks

}  // namespace lmdeploy
