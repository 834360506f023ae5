#include "lmdeploy/formats/checkpoint_kinds.h"

#include <charconv>
#include <cstring>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/formats/tensor_bytes.h"

namespace lmdeploy {
namespace {

// "00012" -> 12; nothing unless it is five digits.
std::optional<int> five_digits(std::string_view text) {
  int value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool all_read = result.ec == std::errc() && result.ptr == text.data() + text.size();
  return text.size() == 5 && text[0] != '-' && all_read ? std::optional(value) : std::nullopt;
}

}  // namespace

void Checkpoint::add_info(TensorInfo info) {
  const auto [known, fresh] = by_name_.emplace(info.name, tensors_.size());
  if (!fresh) {
    const TensorInfo& other = tensors_[known->second];
    throw Error(ErrorCode::kInvalidData,
                cat("tensor ", quote(info.name), " is in ", other.file, " (as ", quote(other.stored_name),
                    ") and in ", info.file, " (as ", quote(info.stored_name), ")"));
  }
  tensors_.push_back(std::move(info));
}

void MappedCheckpoint::add_tensor(TensorInfo info, std::span<const std::byte> bytes, const MappedFile& file,
                                  std::vector<int64_t> strides) {
  add_info(std::move(info));
  places_.push_back({bytes, &file, std::move(strides)});
}

ConstTensorView MappedCheckpoint::tensor(size_t index) const {
  LMD_CHECK(index < places_.size(), index, " of ", places_.size());
  const TensorInfo& info = tensors_[index];
  const auto& [bytes, file, strides] = places_[index];
  const size_t alignment = is_quantized(info.dtype) ? 2 : static_cast<size_t>(block_bytes(info.dtype));
  if (strides.empty() && reinterpret_cast<uintptr_t>(bytes.data()) % alignment == 0)
    return {bytes.data(), info.dtype, info.shape};
  const std::lock_guard lock(copies_mutex_);
  Tensor& copy = copies_[index];
  if (copy.empty()) {
    copy = Tensor(info.dtype, info.shape);
    if (!strides.empty())
      copy_strided(bytes, info.dtype, info.shape, strides, copy.view().data());
    else if (!bytes.empty())
      std::memcpy(copy.view().data(), bytes.data(), bytes.size());
  }
  return copy.view();
}

void MappedCheckpoint::drop(size_t index) const {
  LMD_CHECK(index < places_.size(), index, " of ", places_.size());
  places_[index].file->drop(places_[index].bytes);
  const std::lock_guard lock(copies_mutex_);
  copies_.erase(index);
}

std::optional<PartName> parse_part_name(std::string_view file_name, std::string_view extension) {
  constexpr std::string_view kPattern = "-00001-of-00001";
  if (!file_name.ends_with(extension)) return std::nullopt;
  file_name.remove_suffix(extension.size());
  if (file_name.size() < kPattern.size()) return std::nullopt;
  const std::string_view tail = file_name.substr(file_name.size() - kPattern.size());
  const auto number = five_digits(tail.substr(1, 5)), count = five_digits(tail.substr(10, 5));
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || !number || !count) return std::nullopt;
  if (*number < 1 || *number > *count) return std::nullopt;
  return PartName{std::string(file_name.substr(0, file_name.size() - kPattern.size())), *number, *count};
}

std::string part_file_name(const PartName& part, int number, std::string_view extension) {
  const auto padded = [](int value) {
    const std::string digits = std::to_string(value);
    return std::string(5 - digits.size(), '0') + digits;
  };
  return cat(part.stem, "-", padded(number), "-of-", padded(part.count), extension);
}

}  // namespace lmdeploy
