#include "lmdeploy/formats/quant/quant_module.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/half.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {

TensorIndex::TensorIndex(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
  for (size_t i = 0; i < checkpoint.tensors().size(); ++i) by_name_.emplace(checkpoint.tensors()[i].name, i);
}

std::optional<size_t> TensorIndex::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<size_t> QuantModule::find(std::string_view suffix) {
  const std::optional<size_t> found = index_.find(cat(prefix_, suffix));
  if (found) sources_.push_back(*found);
  return found;
}

size_t QuantModule::require(std::string_view suffix) {
  if (const std::optional<size_t> found = find(suffix)) return *found;
  const std::string& path = index_.checkpoint().path();
  const std::string beside = sources_.empty() ? "" : cat(", expected beside ", quote(info(sources_[0]).name));
  throw Error(ErrorCode::kInvalidData,
              cat("open ", path, ": tensor ", quote(cat(prefix_, suffix)), " is missing", beside));
}

void QuantModule::fail(size_t tensor, const std::string& what, ErrorCode code) const {
  throw Error(code, cat("open ", info(tensor).file, ": tensor ", quote(info(tensor).name), " ", what));
}

void QuantModule::expect(size_t tensor, std::initializer_list<DType> dtypes, const Shape& shape) const {
  const TensorInfo& found = info(tensor);
  const bool known = std::find(dtypes.begin(), dtypes.end(), found.dtype) != dtypes.end();
  if (known && found.shape == shape) return;
  std::string names;
  for (const DType dtype : dtypes) names += cat(names.empty() ? "" : " or ", dtype);
  fail(tensor, cat("is ", found.dtype, " ", found.shape, ", expected ", names, " ", shape));
}

void QuantModule::expect_rank(size_t tensor, int rank) const {
  if (info(tensor).shape.rank() != rank)
    fail(tensor, cat("is ", info(tensor).dtype, " ", info(tensor).shape, ", expected ", rank, " dimensions"));
  if (info(tensor).shape.numel() == 0) fail(tensor, cat("is empty: ", info(tensor).shape));
}

int64_t QuantModule::group_size(size_t tensor, int64_t num_inputs, int64_t groups,
                                const QuantConfig& config) const {
  if (groups < 1 || num_inputs < 1 || num_inputs % groups != 0)
    fail(tensor,
         cat("has ", groups, " groups, which do not divide the ", num_inputs, " inputs of the module"));
  const int64_t size = num_inputs / groups;
  if (config.group_sizes.empty()) return size;
  std::string wanted;
  for (const int64_t said : config.group_sizes) {
    if (said == -1 ? groups == 1 : said == size) return size;
    wanted += cat(wanted.empty() ? "" : " or ", said);
  }
  const int64_t first = config.group_sizes[0];
  const bool divides = first < 0 || num_inputs % first == 0;
  fail(tensor,
       cat("has ", groups, " groups of ", size, " inputs, but ", config.where, " says group_size ", wanted,
           divides ? "" : cat(", which does not divide the ", num_inputs, " inputs of the module")));
}

Recipe QuantModule::recipe(size_t main, const std::string& name, DType dtype, const Shape& shape,
                           std::function<void(const Checkpoint&, std::byte*)> make) const {
  Recipe out;
  out.info = info(main);
  out.info.name = name;
  out.info.dtype = dtype;
  out.info.shape = shape;
  out.sources = sources_;
  out.make = std::move(make);
  return out;
}

DType integer_kind(int bits, int64_t group_size, int64_t num_inputs) {
  const auto fits = [&](DType dtype) {
    return group_size % block_size(dtype) == 0 && num_inputs % block_size(dtype) == 0;
  };
  if (bits == 8) return fits(DType::kI8G64) ? DType::kI8G64 : DType::kF32;
  if (bits == 5) return fits(DType::kU5G32) ? DType::kU5G32 : DType::kF32;
  if (fits(DType::kU4G128)) return DType::kU4G128;
  return fits(DType::kU4G32) ? DType::kU4G32 : DType::kF32;
}

void IntegerRow::write(DType dtype, int64_t group_size, std::byte* out) const {
  const int64_t size = dtype == DType::kF32 ? group_size : block_size(dtype);
  const auto num_inputs = static_cast<int64_t>(q.size());
  for (int64_t begin = 0; begin < num_inputs; begin += size) {
    const auto group = static_cast<size_t>(begin / group_size);
    const int16_t* const from = q.data() + begin;
    if (dtype == DType::kF32) {
      auto* const values = reinterpret_cast<float*>(out) + begin;
      for (int64_t k = 0; k < std::min(size, num_inputs - begin); ++k)
        values[k] = static_cast<float>(from[k] - zeros[group]) * scales[group];
      continue;
    }
    std::byte* const block = out + begin / size * block_bytes(dtype);
    std::memcpy(block, &scales[group], sizeof(float));
    std::memcpy(block + 4, &zeros[group], sizeof(int32_t));
    const bool nibbles = dtype == DType::kU4G32 || dtype == DType::kU4G128;
    for (int64_t k = 0; nibbles && k < size; k += 2)
      block[8 + k / 2] = static_cast<std::byte>(from[k] | from[k + 1] << 4);
    for (int64_t k = 0; !nibbles && k < size; ++k) block[8 + k] = static_cast<std::byte>(from[k]);
  }
}

void IntegerRow::write(const IntegerColumns& columns, int64_t group_size, std::byte* out) const {
  if (columns.groups.empty()) return write(columns.dtype, group_size, out);
  auto* const values = reinterpret_cast<float*>(out);
  for (size_t k = 0; k < q.size(); ++k) {
    const auto group = static_cast<size_t>(columns.groups[k]);
    values[k] = static_cast<float>(q[k] - zeros[group]) * scales[group];
  }
}

std::vector<float> floats_of(ConstTensorView tensor) {
  const auto count = static_cast<size_t>(tensor.rows() * tensor.cols());
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) {
    if (tensor.dtype() == DType::kF16)
      out[i] = to_float(tensor.row<F16>(0)[i]);
    else if (tensor.dtype() == DType::kBF16)
      out[i] = to_float(tensor.row<BF16>(0)[i]);
    else
      out[i] = tensor.row<float>(0)[i];
  }
  return out;
}

IntegerColumns integer_columns(const QuantModule& module, std::optional<size_t> g_idx, int bits,
                               int64_t groups, int64_t group_size) {
  const int64_t num_inputs = groups * group_size;
  const DType kind = integer_kind(bits, group_size, num_inputs);
  if (!g_idx) return {kind};
  const int32_t* stored = module.view(*g_idx).row<int32_t>(0);
  std::vector<int64_t> sizes(static_cast<size_t>(groups));
  bool in_order = true;
  for (int64_t k = 0; k < num_inputs; ++k) {
    if (stored[k] < 0 || stored[k] >= groups)
      module.fail(*g_idx, cat("has ", stored[k], " at ", k, ", expected a group from 0 to ", groups - 1));
    ++sizes[static_cast<size_t>(stored[k])];
    in_order = in_order && stored[k] == k / group_size;
  }
  if (in_order) return {kind};
  const bool even = std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size == group_size; });
  if (kind == DType::kF32 || !even) return {DType::kF32, nullptr, {stored, stored + num_inputs}};
  std::vector<int32_t> order(static_cast<size_t>(num_inputs));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return stored[a] < stored[b]; });
  return {kind, std::make_shared<const std::vector<int32_t>>(std::move(order))};
}

}  // namespace lmdeploy
