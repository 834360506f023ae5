// What the kernel says about the machine and this process in /proc and /sys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lmdeploy {

/// The number after `key` in a file of lines "key number ..."; nothing when there is none.
std::optional<double> proc_number(const std::string& path, const std::string& key);

/// "model name" of /proc/cpuinfo, or "unknown".
std::string cpu_model();
/// "max 100000" of cgroup v2; "" when there is none.
std::string cgroup_cpu_limit();
/// CPUs that the affinity mask allows, and those that are online.
int allowed_cpus();
int online_cpus();
int numa_nodes();
/// MiB of memory that no cache holds: `least`, or twice the largest cache where that is more. A virtual
/// machine can be told of a cache that it shares with others.
int64_t mib_beyond_caches(int64_t least);

struct ResidentBytes {
  double now = 0, peak = 0;
};
/// Of this process.
ResidentBytes resident_bytes();
/// The peak is now what is resident now, where the kernel allows that.
void reset_peak_resident();

/// The one-minute load average, or 0.
double load_average();

/// How many CPUs other processes keep busy.
class OtherLoad {
 public:
  OtherLoad();
  /// The average since construction; nothing where the kernel does not say.
  std::optional<double> cpus() const;

 private:
  struct Times {
    double busy_s = 0;  // of all CPUs, time stolen by the host's other guests included
    double own_s = 0;   // of this process
    double wall_s = 0;
  };
  static std::optional<Times> now();

  std::optional<Times> start_;
};

}  // namespace lmdeploy
