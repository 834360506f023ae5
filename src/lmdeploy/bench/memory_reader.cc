#include "lmdeploy/bench/memory_reader.h"

#include <sys/mman.h>

#include <cstring>

#include "lmdeploy/bench/measure.h"
#include "lmdeploy/bench/proc_files.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kWordsAtOnce = 8;

int64_t mapped_bytes(int64_t bytes) { return bytes + kHugePage; }

int64_t huge_bytes_of_process() {
  return static_cast<int64_t>(1024 * proc_number("/proc/self/smaps_rollup", "AnonHugePages:").value_or(0));
}

/// XOR of `words` words in `streams` interleaved runs.
uint64_t read_runs(const uint64_t* words, int64_t count, int64_t streams) {
  const int64_t length = count / streams / kWordsAtOnce * kWordsAtOnce;
  uint64_t sums[kWordsAtOnce] = {};
  for (int64_t i = 0; i < length; i += kWordsAtOnce)
    for (int64_t s = 0; s < streams; ++s)
      for (int64_t j = 0; j < kWordsAtOnce; ++j) sums[j] ^= words[s * length + i + j];
  uint64_t all = 0;
  for (const uint64_t sum : sums) all ^= sum;
  return all;
}

}  // namespace

MemoryReader::MemoryReader(int64_t bytes, Pages pages) : bytes_(bytes) {
  void* raw = ::mmap(nullptr, static_cast<size_t>(mapped_bytes(bytes)), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED)
    throw Error(ErrorCode::kResourceExhausted, cat("out of memory: the system refused ", bytes, " bytes"));
  data_ = static_cast<std::byte*>(raw);
  ::madvise(raw, static_cast<size_t>(mapped_bytes(bytes)),
            pages == Pages::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  const int64_t before = huge_bytes_of_process();
  std::memset(raw, 1, static_cast<size_t>(mapped_bytes(bytes)));
  huge_bytes_ = huge_bytes_of_process() - before;
}

MemoryReader::~MemoryReader() { ::munmap(data_, static_cast<size_t>(mapped_bytes(bytes_))); }

double MemoryReader::read(ThreadPool& threads, int64_t streams) const {
  const auto* words = reinterpret_cast<const uint64_t*>(data_);
  const int64_t share = bytes_ / 8 / threads.num_threads();
  const double seconds = seconds_of([&] {
    threads.run([&](int worker) {
      const uint64_t sum = read_runs(words + worker * share, share, streams);
      __asm__ volatile("" : : "r"(sum));  // somebody wants it
    });
  });
  return static_cast<double>(share * 8 * threads.num_threads()) / seconds;
}

}  // namespace lmdeploy
