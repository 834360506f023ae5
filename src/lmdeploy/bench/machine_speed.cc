#include "lmdeploy/bench/machine_speed.h"

#include <algorithm>
#include <memory>
#include <ostream>
#include <vector>

#include "lmdeploy/bench/dot_chains.h"
#include "lmdeploy/bench/memory_reader.h"
#include "lmdeploy/bench/proc_files.h"
#include "lmdeploy/bench/text_line.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/system_memory.h"
#include "lmdeploy/core/thread_pool.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {
namespace {

constexpr int64_t kStreams[] = {1, 2, 4, 8};
constexpr double kBusyCpus = 0.1;  // of others: figures are off by more than they are usually reproducible
constexpr size_t kColumn = 22;

using Pools = std::vector<std::unique_ptr<ThreadPool>>;

// 1, 2, 4, ... and the largest.
Pools make_pools(int most) {
  Pools pools;
  for (int threads = 1; threads < most; threads *= 2) pools.push_back(std::make_unique<ThreadPool>(threads));
  pools.push_back(std::make_unique<ThreadPool>(most));
  return pools;
}

std::string cgroup_text() {
  const std::string limit = cgroup_cpu_limit();
  return limit.empty() || limit.rfind("max", 0) == 0 ? "no cgroup limit" : cat("cgroup cpu.max ", limit);
}

/// All the combinations of threads, streams and pages, measured in turn so that a slow moment hits all.
class ReadTable {
 public:
  ReadTable(const Pools& pools, int64_t bytes)
      : pools_(pools), small_(bytes, Pages::kSmall), huge_(bytes, Pages::kHuge) {
    for (const auto& pool : pools)
      for (const int64_t streams : kStreams) rows_.push_back({pool.get(), streams, {}, {}});
  }
  void measure() {
    for (Row& row : rows_) {
      row.small.push_back(small_.read(*row.threads, row.streams) * 1e-9);
      row.huge.push_back(huge_.read(*row.threads, row.streams) * 1e-9);
    }
  }
  void print(std::ostream& out) const {
    const auto granted = static_cast<double>(huge_.huge_bytes());
    const bool all = granted > 0.99 * static_cast<double>(huge_.bytes());
    out << "\nRead from memory in GB/s: median (least-most). 2 MiB pages: the system granted "
        << (all ? "all of them"
                : cat(bytes_text(granted), " of ", bytes_text(static_cast<double>(huge_.bytes()))))
        << ".\n"
        << TextLine().left("threads", 9).left("streams each", 14).left("4 KiB pages", kColumn).text()
        << "2 MiB pages\n";
    for (const Row& row : rows_)
      out << TextLine()
                 .left(cat(row.threads->num_threads()), 9)
                 .left(cat(row.streams), 14)
                 .left(to_text(spread_of(row.small)), kColumn)
                 .text()
          << to_text(spread_of(row.huge)) << '\n';
  }

 private:
  struct Row {
    ThreadPool* threads;
    int64_t streams;
    std::vector<double> small, huge;  // GB/s
  };
  const Pools& pools_;
  const MemoryReader small_, huge_;
  std::vector<Row> rows_;
};

void print_dot_peaks(const Pools& pools, int rounds, std::ostream& out) {
  constexpr int64_t kSteps = 500000;
  const std::vector<DotChain> chains = dot_chains();
  out << "\nMultiply-adds in registers in 10^9 operations a second (an addition and a product are two).\n";
  if (chains.empty()) out << "none: this processor has neither AVX2 nor AVX-512\n";
  for (const auto& pool : pools) {
    for (const DotChain& chain : chains) {
      const Spread spread = spread_of(rounds, [&] {
        const double seconds = seconds_of([&] { pool->run([&](int) { chain.run(kSteps); }); });
        return 1e-9 * static_cast<double>(kSteps * chain.ops * pool->num_threads()) / seconds;
      });
      out << TextLine()
                 .left(cat(pool->num_threads(), pool->num_threads() == 1 ? " thread" : " threads"), 12)
                 .left(to_string(chain.numbers), 6)
                 .left(chain.name, 26)
                 .text()
          << to_text(spread) << '\n';
    }
  }
}

void print_barriers(const Pools& pools, int rounds, std::ostream& out) {
  constexpr int kLoops = 2000;
  out << "\nAn empty parallel loop of the thread pool, in microseconds.\n";
  for (const auto& pool : pools) {
    const Spread spread = spread_of(rounds, [&] {
      return 1e6 / kLoops * seconds_of([&] {
               for (int i = 0; i < kLoops; ++i) pool->run([](int) {});
             });
    });
    out << TextLine()
               .left(cat(pool->num_threads(), pool->num_threads() == 1 ? " thread" : " threads"), 12)
               .text()
        << to_text(spread) << '\n';
  }
}

}  // namespace

void print_machine(std::ostream& out, int num_threads) {
  const SystemMemory memory = system_memory();
  const double load = load_average();
  out << cpu_model() << ", " << to_string(best_cpu_isa()) << "; " << online_cpus() << " CPUs online, "
      << allowed_cpus() << " allowed, " << cgroup_text() << ", NUMA nodes: " << numa_nodes()
      << "; threads used: " << num_threads << '\n'
      << "memory " << bytes_text(static_cast<double>(memory.total_bytes)) << ", "
      << bytes_text(static_cast<double>(memory.available_bytes)) << " available; load average "
      << fixed(load, 2) << '\n';
  if (load > 0.25 * online_cpus())
    out << "warning: the machine has been busy for a minute: figures may be low and vary\n";
  out << std::flush;
}

void print_other_load(std::ostream& out, const OtherLoad& load) {
  const std::optional<double> cpus = load.cpus();
  if (!cpus) return;
  out << "\nOther programs kept " << fixed(*cpus, 2) << " CPUs busy meanwhile"
      << (*cpus > kBusyCpus ? ": warning: the figures are too low, measure again on an idle machine" : "")
      << ".\n";
}

void measure_machine(const MachineSpeedOptions& options, std::ostream& out) {
  const OtherLoad load;
  const int most = options.num_threads > 0 ? options.num_threads : available_cpus();
  print_machine(out, most);
  const Pools pools = make_pools(most);
  {
    ReadTable reads(pools, options.memory_mib << 20);
    for (int i = 0; i < options.rounds; ++i) reads.measure();
    reads.print(out);
  }
  print_dot_peaks(pools, options.rounds, out);
  print_barriers(pools, options.rounds, out);
  print_other_load(out, load);
}

}  // namespace lmdeploy
