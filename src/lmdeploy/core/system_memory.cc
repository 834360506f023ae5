#include "lmdeploy/core/system_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace lmdeploy {
namespace {

/// Value of a /proc/meminfo line, in bytes.
std::optional<size_t> meminfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  size_t kib = 0;
  std::string unit;
  while (file >> name >> kib && std::getline(file, unit))
    if (name == key + ":") return kib * 1024;
  return std::nullopt;
}

/// A file that holds one number; "max" and absent files give nothing.
std::optional<size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  size_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

/// Bytes of file pages that the kernel takes back first: a cgroup counts them as used.
size_t reclaimable(const std::string& stat_path, const std::string& key) {
  std::ifstream file(stat_path);
  std::string name;
  size_t bytes = 0;
  while (file >> name >> bytes)
    if (name == key) return bytes;
  return 0;
}

/// RLIMIT_AS (`ulimit -v`), where it is set.
std::optional<size_t> address_space_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<size_t>(limit.rlim_cur);
}

std::optional<size_t> address_space_used() {
  const auto pages = number_in("/proc/self/statm");
  return pages ? std::optional(*pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE))) : std::nullopt;
}

void apply_limit(SystemMemory& memory, std::optional<size_t> limit, std::optional<size_t> used,
                 size_t reclaimable_bytes) {
  if (!limit || !used) return;
  const size_t taken = *used - std::min(*used, reclaimable_bytes);
  memory.total_bytes = std::min(memory.total_bytes, *limit);
  memory.available_bytes = std::min(memory.available_bytes, *limit - std::min(*limit, taken));
}

}  // namespace

SystemMemory system_memory() {
  SystemMemory memory;
  memory.total_bytes = meminfo("MemTotal").value_or(0);
  memory.available_bytes = meminfo("MemAvailable").value_or(memory.total_bytes / 2);
  // A container sees its own cgroup as the root of this tree.
  apply_limit(memory, number_in("/sys/fs/cgroup/memory.max"), number_in("/sys/fs/cgroup/memory.current"),
              reclaimable("/sys/fs/cgroup/memory.stat", "inactive_file"));
  apply_limit(memory, number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
              number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
              reclaimable("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file"));
  apply_limit(memory, address_space_limit(), address_space_used(), 0);
  return memory;
}

}  // namespace lmdeploy
