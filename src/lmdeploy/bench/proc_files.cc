#include "lmdeploy/bench/proc_files.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <vector>

#include "lmdeploy/bench/measure.h"

namespace lmdeploy {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

std::optional<double> proc_number(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    double value = 0;
    if (words >> first && first == key && words >> value) return value;
  }
  return std::nullopt;
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string cgroup_cpu_limit() { return first_line("/sys/fs/cgroup/cpu.max"); }

int allowed_cpus() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

int online_cpus() { return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)); }

int numa_nodes() {
  int nodes = 0;
  while (std::filesystem::exists("/sys/devices/system/node/node" + std::to_string(nodes))) ++nodes;
  return std::max(nodes, 1);
}

int64_t mib_beyond_caches(int64_t least) {
  return std::max<int64_t>(least, 2 * ::sysconf(_SC_LEVEL3_CACHE_SIZE) >> 20);
}

ResidentBytes resident_bytes() {
  return {1024 * proc_number("/proc/self/status", "VmRSS:").value_or(0),
          1024 * proc_number("/proc/self/status", "VmHWM:").value_or(0)};
}

void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << 5; }

double load_average() {
  double average = 0;
  return ::getloadavg(&average, 1) == 1 ? average : 0;
}

OtherLoad::OtherLoad() : start_(now()) {}

// "cpu user nice system idle iowait irq softirq steal ..." in ticks.
std::optional<OtherLoad::Times> OtherLoad::now() {
  std::istringstream words(first_line("/proc/stat"));
  std::string name;
  words >> name;
  std::vector<double> ticks(8);
  for (double& value : ticks)
    if (!(words >> value)) return std::nullopt;
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  const double busy = std::accumulate(ticks.begin(), ticks.end(), 0.0) - ticks[3] - ticks[4];
  return Times{.busy_s = busy / static_cast<double>(::sysconf(_SC_CLK_TCK)),
               .own_s = seconds(usage.ru_utime) + seconds(usage.ru_stime),
               .wall_s = std::chrono::duration<double>(Clock::now().time_since_epoch()).count()};
}

std::optional<double> OtherLoad::cpus() const {
  const std::optional<Times> end = now();
  if (!start_ || !end || end->wall_s <= start_->wall_s) return std::nullopt;
  const double others = (end->busy_s - start_->busy_s) - (end->own_s - start_->own_s);
  return std::max(0.0, others) / (end->wall_s - start_->wall_s);
}

}  // namespace lmdeploy
