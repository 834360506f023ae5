#include "lmdeploy/formats/quant/quant_module.h"

#include <algorithm>
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

Recipe QuantModule::recipe(size_t main, const std::string& name, const Shape& shape,
                           std::function<void(const Checkpoint&, float*)> make) const {
  Recipe out;
  out.info = info(main);
  out.info.name = name;
  out.info.dtype = DType::kF32;
  out.info.shape = shape;
  out.sources = sources_;
  out.make = [make = std::move(make)](const Checkpoint& base, std::byte* bytes) {
    make(base, reinterpret_cast<float*>(bytes));
  };
  return out;
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

std::vector<int32_t> input_groups(const Checkpoint& checkpoint, std::optional<size_t> g_idx,
                                  int64_t num_inputs, int64_t group_size, int64_t groups) {
  std::vector<int32_t> out(static_cast<size_t>(num_inputs));
  const int32_t* stored = g_idx ? checkpoint.tensor(*g_idx).row<int32_t>(0) : nullptr;
  for (int64_t k = 0; k < num_inputs; ++k) {
    const int64_t group = stored == nullptr ? k / group_size : stored[k];
    if (group < 0 || group >= groups) {
      const TensorInfo& info = checkpoint.tensors()[*g_idx];
      throw Error(ErrorCode::kInvalidData,
                  cat("load ", info.file, ": tensor ", quote(info.name), " has ", group, " at ", k,
                      ", expected a group from 0 to ", groups - 1));
    }
    out[static_cast<size_t>(k)] = static_cast<int32_t>(group);
  }
  return out;
}

}  // namespace lmdeploy
