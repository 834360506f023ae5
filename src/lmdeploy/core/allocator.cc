#include "lmdeploy/core/allocator.h"

#include <sys/mman.h>

#include <new>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr std::align_val_t kAlignment{64};

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

[[noreturn]] void out_of_memory(size_t bytes) {
  throw Error(ErrorCode::kResourceExhausted, cat("out of memory: the system refused ", bytes, " bytes"));
}

// A 2 MiB aligned mapping: maps one huge page more than needed and gives the ends back.
std::byte* map_aligned(size_t bytes) {
  const size_t span = bytes + kHugePage;
  if (span < bytes) out_of_memory(bytes);
  void* raw =
      ::mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) out_of_memory(bytes);
  const auto begin = reinterpret_cast<size_t>(raw);
  const size_t aligned = round_up(begin, kHugePage);
  if (aligned > begin) ::munmap(raw, aligned - begin);
  const size_t tail = begin + span - (aligned + bytes);
  if (tail > 0) ::munmap(reinterpret_cast<void*>(aligned + bytes), tail);
  auto* data = reinterpret_cast<std::byte*>(aligned);
  ::madvise(data, bytes, MADV_HUGEPAGE);  // a hint: falls back to small pages where refused
  return data;
}

class HostAllocator final : public Allocator {
 public:
  std::byte* allocate(size_t bytes) override {
    if (is_mapped(bytes)) return map_aligned(round_up(bytes, kHugePage));
    auto* data = static_cast<std::byte*>(::operator new(bytes == 0 ? 1 : bytes, kAlignment, std::nothrow));
    if (data == nullptr) out_of_memory(bytes);
    return data;
  }
  void free(std::byte* data, size_t bytes) noexcept override {
    if (is_mapped(bytes)) {
      ::munmap(data, round_up(bytes, kHugePage));
    } else {
      ::operator delete(data, kAlignment);
    }
  }

 private:
  static bool is_mapped(size_t bytes) { return bytes >= kHugePage; }
};

}  // namespace

Allocator& host_allocator() {
  static HostAllocator allocator;
  return allocator;
}

}  // namespace lmdeploy
