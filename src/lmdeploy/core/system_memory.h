// How much memory this process may still use.
#pragma once

#include <cstddef>

namespace lmdeploy {

struct SystemMemory {
  size_t total_bytes = 0;      // of the machine, or the cgroup's limit where that is less
  size_t available_bytes = 0;  // without swapping, under the cgroup's limit too
};

/// From /proc/meminfo and the limits of this process's cgroup (v2 or v1).
SystemMemory system_memory();

}  // namespace lmdeploy
