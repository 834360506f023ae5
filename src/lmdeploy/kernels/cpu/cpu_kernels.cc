// The CPU back end's choice of instruction set, scratch and loops.
#include "lmdeploy/kernels/cpu/cpu_kernels.h"

#include <algorithm>
#include <atomic>

#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/checks.h"

namespace lmdeploy {

std::string_view to_string(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable:
      return "portable";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

bool cpu_isa_available(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable:
      return true;
#if defined(__x86_64__)
    case CpuIsa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
    case CpuIsa::kAvx512:
      return cpu_isa_available(CpuIsa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq");
#endif
    default:
      return false;
  }
}

CpuIsa best_cpu_isa() {
  for (const CpuIsa isa : {CpuIsa::kAvx512, CpuIsa::kAvx2}) {
    if (cpu_isa_available(isa)) return isa;
  }
  return CpuIsa::kPortable;
}

std::unique_ptr<Kernels> make_cpu_kernels(std::shared_ptr<ThreadPool> threads, CpuIsa isa) {
  if (!cpu_isa_available(isa))
    throw Error(ErrorCode::kUnsupported,
                cat("CPU kernels for ", isa, ": this processor or build lacks it; use ", best_cpu_isa()));
  const auto make = [&](const cpu::IsaOps& ops) {
    return std::make_unique<cpu::CpuKernels>(std::move(threads), isa, ops);
  };
#if defined(__x86_64__)
  if (isa == CpuIsa::kAvx512) return make(cpu::avx512::ops());
  if (isa == CpuIsa::kAvx2) return make(cpu::avx2::ops());
#endif
  return make(cpu::portable::ops());
}

namespace cpu {

std::byte* Scratch::bytes(int64_t count) {
  const auto bytes = static_cast<size_t>(count);
  if (bytes > buffer_.size()) {
    buffer_ = Buffer();  // free first: the old content is not needed
    buffer_ = Buffer(bytes, host_allocator());
  }
  return buffer_.data();
}

CpuKernels::CpuKernels(std::shared_ptr<ThreadPool> threads, CpuIsa isa, const IsaOps& ops)
    : threads_(std::move(threads)),
      isa_(isa),
      ops_(ops),
      thread_scratch_(static_cast<size_t>(threads_->num_threads())) {}

std::string CpuKernels::name() const { return cat("cpu-", isa_); }

std::unique_ptr<PackedWeight> CpuKernels::pack_weight(std::span<const ConstTensorView> parts) const {
  const int64_t rows = checks::weight_parts(parts);
  return std::make_unique<CpuWeight>(parts, rows, *threads_);
}

const CpuWeight& cpu_weight(const char* op, const PackedWeight& weight) {
  const auto* own = dynamic_cast<const CpuWeight*>(&weight);
  if (own == nullptr)
    throw Error(ErrorCode::kInvalidArgument, cat(op, ": the weight was packed by another back end than cpu"));
  return *own;
}

void CpuKernels::for_pieces(int64_t count, int64_t grain,
                            FunctionRef<void(int, int64_t, int64_t)> body) const {
  const int64_t threads = threads_->num_threads();
  // About four pieces a thread, to even out; not finer, as each costs a shared counter's update.
  const int64_t piece = std::max({grain, int64_t{1}, (count + threads * 4 - 1) / (threads * 4)});
  if (piece >= count || threads == 1) {
    if (count > 0) body(0, 0, count);
    return;
  }
  std::atomic<int64_t> next{0};
  threads_->run([&](int worker) {
    for (int64_t begin = next.fetch_add(piece); begin < count; begin = next.fetch_add(piece))
      body(worker, begin, std::min(begin + piece, count));
  });
}

void CpuKernels::for_rows(int64_t rows, int64_t cols, FunctionRef<void(int64_t)> body) const {
  constexpr int64_t kPieceElements = 16384;  // a few microseconds: about the price of waking a thread
  const int64_t grain = (kPieceElements + cols) / (cols + 1);
  for_pieces(rows, grain, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) body(r);
  });
}

}  // namespace cpu
}  // namespace lmdeploy
