#include "lmdeploy/bench/load_timer.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "lmdeploy/bench/memory_reader.h"
#include "lmdeploy/bench/text_line.h"
#include "lmdeploy/core/allocator.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/core/system_memory.h"

namespace lmdeploy {
namespace {

constexpr size_t kPiece = size_t{64} << 20;

// One thread, to fresh memory.
double copy_seconds(std::span<const std::byte> source) {
  return seconds_of([&] {
    const Buffer fresh(source.size(), host_allocator());
    std::memcpy(fresh.data(), source.data(), source.size());
  });
}

// The second copy of each file is timed: the first one brings it into the page cache.
double copy_file_seconds(const MappedFile& file) {
  double seconds = 0;
  for (size_t at = 0; at < file.bytes().size(); at += kPiece) {
    const auto piece = file.bytes().subspan(at, std::min(kPiece, file.bytes().size() - at));
    seconds += copy_seconds(piece);
    file.drop(piece);  // from this process: the page cache keeps it
  }
  return seconds;
}

double copy_files_seconds(const std::vector<std::string>& files) {
  double seconds = 0;
  for (const std::string& file : files) {
    const MappedFile mapped(file);
    copy_file_seconds(mapped);
    seconds += copy_file_seconds(mapped);
  }
  return seconds;
}

double copy_bytes_seconds(double bytes) {
  const MemoryReader source(kPiece, Pages::kHuge);
  const auto size = static_cast<size_t>(source.bytes());
  double seconds = 0;
  for (auto left = static_cast<size_t>(bytes); left > 0; left -= std::min(left, size))
    seconds += copy_seconds({source.data(), std::min(left, size)});
  return seconds;
}

void check_fits(double weight_bytes) {
  const auto available = static_cast<double>(system_memory().available_bytes);
  if (available > 0 && weight_bytes > available)
    throw Error(ErrorCode::kResourceExhausted,
                cat("the weights take ", bytes_text(weight_bytes), ", found ", bytes_text(available),
                    " of memory available; choose a smaller --shape or --weights"));
}

double stored_bytes(const Checkpoint& checkpoint) {
  double bytes = 0;
  for (const TensorInfo& tensor : checkpoint.tensors())
    bytes += static_cast<double>(tensor.shape.rank() == 0 ? block_bytes(tensor.dtype)
                                                          : row_bytes(tensor.dtype, tensor.shape.numel()));
  return bytes;
}

double file_bytes(const std::vector<std::string>& files) {
  double bytes = 0;
  for (const std::string& file : files) bytes += static_cast<double>(MappedFile(file).bytes().size());
  return bytes;
}

}  // namespace

void LoadTimer::time_files(const std::string& path, const Load& load) {
  const std::vector<std::string> files = open_checkpoint(path)->files();
  figures_.bytes = file_bytes(files);
  figures_.copy_s = copy_files_seconds(files);
  started_ = Clock::now();
  load(*open_checkpoint(path));
  figures_.load_s = seconds_since(started_);
}

void LoadTimer::time_random(const RandomCheckpoint& checkpoint, const Load& load) {
  figures_.bytes = stored_bytes(checkpoint);
  check_fits(figures_.bytes);
  figures_.copy_s = copy_bytes_seconds(figures_.bytes);
  started_ = Clock::now();
  load(checkpoint);
  making_s_ = checkpoint.making_seconds();
  figures_.load_s = seconds_since(started_) - making_s_;
}

}  // namespace lmdeploy
