// The CPU back end's choice of instruction set, scratch and loops.
#include "lmdeploy/kernels/cpu/cpu_kernels.h"

#include <algorithm>
#include <atomic>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/checks.h"

namespace lmdeploy {

std::string_view to_string(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable:
      return "portable";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx2Vnni:
      return "avx2vnni";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx512Vnni:
      return "avx512vnni";
    case CpuIsa::kAvx512BF16:
      return "avx512bf16";
  }
  return "unknown";
}

#if defined(__x86_64__)
namespace {

// GCC 12's __builtin_cpu_supports does not know it. Leaf 7, subleaf 1: EAX bit 4.
bool has_avx_vnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
}

/// Emerald Rapids multiplies pairs of bf16 at half the rate of f32, Zen 4 at twice (docs/cpu_log.md).
bool multiplies_bf16_fast() { return __builtin_cpu_is("intel") == 0; }

}  // namespace
#endif

bool cpu_isa_available(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable:
      return true;
#if defined(__x86_64__)
    case CpuIsa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
    case CpuIsa::kAvx2Vnni:
      return cpu_isa_available(CpuIsa::kAvx2) && has_avx_vnni();
    case CpuIsa::kAvx512Vnni:
      return cpu_isa_available(CpuIsa::kAvx512) && __builtin_cpu_supports("avx512vnni");
    case CpuIsa::kAvx512BF16:
      return cpu_isa_available(CpuIsa::kAvx512Vnni) && __builtin_cpu_supports("avx512bf16");
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
#if defined(__x86_64__)
  if (cpu_isa_available(CpuIsa::kAvx512BF16) && multiplies_bf16_fast()) return CpuIsa::kAvx512BF16;
#endif
  for (const CpuIsa isa : {CpuIsa::kAvx512Vnni, CpuIsa::kAvx512, CpuIsa::kAvx2Vnni, CpuIsa::kAvx2}) {
    if (cpu_isa_available(isa)) return isa;
  }
  return CpuIsa::kPortable;
}

namespace {

cpu::IsaOps isa_ops(CpuIsa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case CpuIsa::kAvx512BF16: {
      cpu::IsaOps ops = isa_ops(CpuIsa::kAvx512Vnni);
      ops.linear_bf16 = cpu::avx512bf16::linear_bf16;
      return ops;
    }
    case CpuIsa::kAvx512Vnni: {
      cpu::IsaOps ops = cpu::avx512::ops();
      ops.linear_int8 = cpu::avx512vnni::linear_int8;
      ops.decoded_tile = cpu::kDecodedTile;
      ops.unsigned_q = true;
      return ops;
    }
    case CpuIsa::kAvx512:
      return cpu::avx512::ops();
    case CpuIsa::kAvx2Vnni: {
      cpu::IsaOps ops = cpu::avx2::ops();
      ops.linear_int8 = cpu::avx2vnni::linear_int8;
      ops.unsigned_q = true;
      return ops;
    }
    case CpuIsa::kAvx2:
      return cpu::avx2::ops();
    case CpuIsa::kPortable:
      break;
  }
#endif
  return cpu::portable::ops();
}

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels(std::shared_ptr<ThreadPool> threads, const CpuOptions& options) {
  if (!cpu_isa_available(options.isa))
    throw Error(ErrorCode::kUnsupported, cat("CPU kernels for ", options.isa,
                                             ": this processor or build lacks it; use ", best_cpu_isa()));
  return std::make_unique<cpu::CpuKernels>(std::move(threads), options, isa_ops(options.isa));
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

CpuKernels::CpuKernels(std::shared_ptr<ThreadPool> threads, const CpuOptions& options, const IsaOps& ops)
    : threads_(std::move(threads)),
      options_(options),
      ops_(ops),
      thread_scratch_(static_cast<size_t>(threads_->num_threads())) {}

std::string CpuKernels::name() const {
  return cat("cpu-", options_.isa, options_.rounded_activations ? "-rounded" : "");
}

std::unique_ptr<PackedWeight> CpuKernels::do_pack_weight(std::span<const ConstTensorView> parts, int64_t rows,
                                                         std::span<const int32_t> column_order) const {
  return std::make_unique<CpuWeight>(parts, rows, column_order, rounding(), *threads_);
}

namespace {

constexpr std::pair<DType, CacheKind> kCacheKinds[] = {{DType::kF32, CacheKind::kF32},
                                                       {DType::kF16, CacheKind::kF16},
                                                       {DType::kBF16, CacheKind::kBF16},
                                                       {DType::kU8, CacheKind::kU8},
                                                       {DType::kU4, CacheKind::kU4}};

const auto* find_cache_kind(DType dtype) {
  return std::ranges::find(kCacheKinds, dtype, &std::pair<DType, CacheKind>::first);
}

}  // namespace

bool CpuKernels::takes_kv_dtype(DType dtype) const { return find_cache_kind(dtype) != std::end(kCacheKinds); }

CacheKind cache_kind(DType dtype) {
  const auto* known = find_cache_kind(dtype);
  LMD_CHECK(known != std::end(kCacheKinds), "a KV cache in ", dtype);
  return known->second;
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
  grain = std::max<int64_t>(grain, 1);
  if (count <= grain || threads == 1) {
    if (count > 0) body(0, 0, count);
    return;
  }
  // Half of an even share of what is left, so that a slow thread ends with the others; not less than an
  // eighth of one of all, as each piece costs an update of a shared counter and a start.
  const int64_t least = std::max(grain, count / (8 * threads));
  std::atomic<int64_t> next{0};
  threads_->run([&](int worker) {
    int64_t begin = next.load();
    while (begin < count) {
      const int64_t end = std::min(count, begin + std::max(least, (count - begin) / (2 * threads)));
      if (!next.compare_exchange_weak(begin, end)) continue;
      body(worker, begin, end);
      begin = next.load();
    }
  });
}

void CpuKernels::for_rows(int64_t rows, int64_t cols, FunctionRef<void(int64_t)> body) const {
  for_worker_rows(rows, cols, [&](int, int64_t row) { body(row); });
}

void CpuKernels::for_worker_rows(int64_t rows, int64_t cols, FunctionRef<void(int, int64_t)> body) const {
  constexpr int64_t kPieceElements = 16384;  // a few microseconds: about the price of waking a thread
  const int64_t grain = (kPieceElements + cols) / (cols + 1);
  for_pieces(rows, grain, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) body(worker, r);
  });
}

}  // namespace cpu
}  // namespace lmdeploy
