// start_draws: a cluster of two blocks of threads for each row where there are multiprocessors enough, else
// one block. A row is read two or three times; what has to be sorted is gathered in shared memory.
//
// Weights are those of the host's sampler, bit for bit: the same operations in the same order, none of them
// contracted. Sums are in f64, in a fixed order of their own, which one block and two have in common: a row
// is two halves, whoever adds them up.
#include <algorithm>

#include "lmdeploy/kernels/cuda/cuda_kernels.h"
#include "lmdeploy/kernels/cuda/launch.cuh"
#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kHalves = 2;                     // of a row
constexpr int kEach = 4;                       // neighbours that a thread adds up
constexpr int kMostSorted = kThreads * kEach;  // tokens
constexpr int kBins = 2 * kThreads;            // of logits, by their distance from the largest
constexpr float kFarthest = 88;                // distance in temperatures beyond which exp() is 0

struct DrawArgs {
  float* logits;
  int64_t stride;
  int vocab_size;
  const TokenDraw* draws;
  const LogitEdit* edits;
  DrawnToken* drawn;
};

__device__ inline int thread() { return static_cast<int>(threadIdx.x); }

// That of engine/softmax.h.
__device__ float exp_nonpositive(float x) {
  constexpr float kLowest = -87, kLog2E = 1.44269504f, kRound = 12582912;
  const float clamped = x < kLowest ? kLowest : x;
  const float rounded = __fadd_rn(__fmul_rn(clamped, kLog2E), kRound);
  const float n = __fsub_rn(rounded, kRound);
  const float r = __fsub_rn(__fsub_rn(clamped, __fmul_rn(n, 0.693359375f)), __fmul_rn(n, -2.12194440e-4f));
  const auto next = [r](float p, float c) { return __fadd_rn(__fmul_rn(p, r), c); };
  float p = next(next(next(1.9875691500e-4f, 1.3981999507e-3f), 8.3334519073e-3f), 4.1665795894e-2f);
  p = next(next(p, 1.6666665459e-1f), 5.0000001201e-1f);
  p = __fadd_rn(__fadd_rn(__fmul_rn(__fmul_rn(p, r), r), r), 1);
  const int exponent = __float_as_int(rounded) - __float_as_int(kRound) + 127;
  return x < kLowest ? 0 : __fmul_rn(p, __int_as_float(exponent << 23));
}

struct Scale {
  float max, temperature;
  __device__ float weight(float logit) const {
    return exp_nonpositive(__fdiv_rn(__fsub_rn(logit, max), temperature));
  }
};

struct Row {
  float* logits;
  int size;
  int half_size;  // a multiple of what kWarps warps read at once
  bool wide;      // whole 16-byte accesses

  /// body(i, logit) for those i of [begin, end) that are thread `at`'s of `count`; they rise. `begin` is a
  /// multiple of 4.
  template <typename Body>
  __device__ void for_each(int begin, int end, int at, int count, const Body& body) const {
    if (!wide) {
      for (int i = begin + at; i < end; i += count) body(i, logits[i]);
      return;
    }
#pragma unroll 4
    for (int i = begin + at * 4; i < end; i += count * 4) {
      const auto four = *reinterpret_cast<const Pack<float, 4>*>(logits + i);
      for (int j = 0; j < 4; ++j) body(i + j, four.values[j]);
    }
  }
  __device__ int begin_of(int half) const { return min(size, half * half_size); }
  template <typename Body>
  __device__ void for_each_of(int half, const Body& body) const {
    for_each(begin_of(half), begin_of(half + 1), thread(), kThreads, body);
  }
};

struct Shared {
  unsigned long long keys[kMostSorted];  // of gathered tokens, see key_of()
  int counts[kBins];
  TokenDraw draw;
  double sums[kWarps];
  double part_sums[kHalves * kWarps];
  double half_sums[kHalves];
  float values[kWarps];
  int ids[kWarps];
  double total;
  int first, last, gathered, last_bin;
  float best_value;  // of the block's halves
  int best_id;
  bool has_nan;
};

/// The blocks that share a row: kBlocks of them, with a half each, or one with both. The first one draws.
template <int kBlocks>
struct Team {
  static_assert(kBlocks == 1 || kBlocks == kHalves);

  __device__ static int rank() {
    if constexpr (kBlocks > 1) return static_cast<int>(blockIdx.x) % kBlocks;
    return 0;
  }
  __device__ static bool has(int half) { return kBlocks == 1 || half == rank(); }
  /// All threads of all blocks; what they have written before is seen after it.
  __device__ static void meet() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if constexpr (kBlocks > 1) {
      __cluster_barrier_arrive();
      __cluster_barrier_wait();
      return;
    }
#endif
    __syncthreads();
  }
  /// That of the block which has the half.
  __device__ static Shared& shared_of(int half, Shared& own) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if constexpr (kBlocks > 1)
      return *static_cast<Shared*>(__cluster_map_shared_rank(&own, static_cast<unsigned>(half)));
#endif
    return own;
  }
};

struct Best {
  float value = -INFINITY;
  int id = INT32_MAX;
  __device__ void take(float other, int other_id) {
    if (other > value || (other == value && other_id < id)) value = other, id = other_id;
  }
};

// The largest logit and its first place; the value is NaN where any is. All blocks find it.
template <typename Team>
__device__ Best find_best(const Row& row, Shared& shared) {
  Best best;
  bool has_nan = false;
  for (int half = 0; half < kHalves; ++half)
    if (Team::has(half))
      row.for_each_of(half, [&](int i, float logit) {
        has_nan |= logit != logit;
        best.take(logit, i);
      });
  const auto meet = [&] {
    for (int offset = 16; offset > 0; offset /= 2) {
      const float value = __shfl_xor_sync(~0u, best.value, offset);
      best.take(value, __shfl_xor_sync(~0u, best.id, offset));
    }
  };
  meet();
  if (thread() % 32 == 0) shared.values[thread() / 32] = best.value, shared.ids[thread() / 32] = best.id;
  has_nan = __syncthreads_or(has_nan);
  best = {shared.values[thread() % 32], shared.ids[thread() % 32]};
  meet();
  if (thread() == 0) shared.best_value = best.value, shared.best_id = best.id, shared.has_nan = has_nan;
  Team::meet();
  for (int half = 0; half < kHalves; ++half) {
    const Shared& others = Team::shared_of(half, shared);
    best.take(others.best_value, others.best_id);
    has_nan |= others.has_nan;
  }
  Team::meet();
  if (has_nan) best.value = nanf("");
  return best;
}

// The sum of the threads' values up to this one's.
__device__ double scan(double value, Shared& shared) {
  for (int offset = 1; offset < 32; offset *= 2) {
    const double other = __shfl_up_sync(~0u, value, offset);
    if (thread() % 32 >= offset) value += other;
  }
  if (thread() % 32 == 31) shared.sums[thread() / 32] = value;
  __syncthreads();
  double before = 0;
  for (int w = 0; w < thread() / 32; ++w) before += shared.sums[w];
  __syncthreads();
  return before + value;
}
__device__ double sum(double value, Shared& shared) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  if (thread() % 32 == 0) shared.sums[thread() / 32] = value;
  __syncthreads();
  double all = 0;
  for (int w = 0; w < kWarps; ++w) all += shared.sums[w];
  __syncthreads();
  return all;
}

// The least of the threads' indices.
__device__ int first_of(int index, Shared& shared) {
  if (thread() == 0) shared.first = INT32_MAX;
  __syncthreads();
  if (index != INT32_MAX) atomicMin(&shared.first, index);
  __syncthreads();
  const int first = shared.first;
  __syncthreads();
  return first;
}

/// Weights of kMostSorted elements, kEach neighbours a thread, and the sums up to each of them.
struct Run {
  float weights[kEach];
  double sums[kEach];
  double total;

  __device__ static int index(int j) { return thread() * kEach + j; }
  template <typename Weight>
  __device__ Run(double before, Shared& shared, const Weight& weight) {
    double own = 0;
    for (int j = 0; j < kEach; ++j) own += weights[j] = weight(index(j));
    double running = before + (scan(own, shared) - own);
    for (int j = 0; j < kEach; ++j) sums[j] = running += weights[j];
    total = total_of_first(kMostSorted, shared);
  }
  __device__ double total_of_first(int count, Shared& shared) const {
    for (int j = 0; j < kEach; ++j)
      if (index(j) == count - 1) shared.total = sums[j];
    __syncthreads();
    const double found = shared.total;
    __syncthreads();
    return found;
  }
  /// The first element for which holds(j), INT32_MAX where there is none.
  template <typename Holds>
  __device__ int find(Shared& shared, const Holds& holds) const {
    int first = INT32_MAX;
    for (int j = kEach - 1; j >= 0; --j)
      if (holds(j)) first = index(j);
    return first_of(first, shared);
  }
  __device__ int find_above(double target, Shared& shared) const {
    return find(shared, [&](int j) { return weights[j] > 0 && sums[j] > target; });
  }
  /// The last element with a weight, -1 where there is none.
  __device__ int last_weight(Shared& shared) const {
    int own = INT32_MAX;
    for (int j = 0; j < kEach; ++j)
      if (weights[j] > 0) own = kMostSorted - index(j);
    const int from_end = first_of(own, shared);
    return from_end == INT32_MAX ? -1 : kMostSorted - from_end;
  }
};

// From all tokens in the order of their ids: first a part of the row, of which a warp adds up one of each
// half, then a token of the part. -1 in blocks other than the first.
template <typename Team>
__device__ int draw_from_all(const Row& row, const Scale& scale, Shared& shared) {
  const TokenDraw& draw = shared.draw;
  const auto weight_of = [&](float logit) {
    const float weight = scale.weight(logit);
    return weight >= draw.min_p ? weight : 0;
  };
  const int part = row.half_size / kWarps;
  for (int half = 0; half < kHalves; ++half) {
    if (!Team::has(half)) continue;
    const int begin = row.begin_of(half) + thread() / 32 * part;
    double own = 0;
    row.for_each(min(row.size, begin), min(row.size, begin + part), thread() % 32, 32,
                 [&](int, float logit) { own += weight_of(logit); });
    for (int offset = 16; offset > 0; offset /= 2) own += __shfl_xor_sync(~0u, own, offset);
    if (thread() % 32 == 0) shared.part_sums[half * kWarps + thread() / 32] = own;
  }
  Team::meet();
  if (Team::rank() != 0) {
    Team::meet();  // the first block has read this one's sums
    return -1;
  }
  double* sums = shared.part_sums;
  const int of_half = thread() / kWarps;
  if (of_half < kHalves) sums[thread()] = Team::shared_of(of_half, shared).part_sums[thread()];
  Team::meet();
  double total = 0;
#pragma unroll 4
  for (int p = 0; p < kHalves * kWarps; ++p) total += sums[p];
  double target = draw.uniform * total;
  int chosen = 0;
#pragma unroll 4
  for (int p = 0; p < kHalves * kWarps; ++p) {
    if (sums[p] > 0) chosen = p;
    if (sums[p] > target) break;
    target -= sums[p];
  }
  __syncthreads();
  double before = 0;
  int last = 0;  // with a weight: where rounding leaves the sum short
  const int end = min(row.size, (chosen + 1) * part);
  for (int begin = chosen * part; begin < end; begin += kMostSorted) {
    const Run run(before, shared,
                  [&](int i) { return begin + i < end ? weight_of(row.logits[begin + i]) : 0; });
    const int found = run.find_above(target, shared);
    if (found != INT32_MAX) return begin + found;
    const int heavy = run.last_weight(shared);
    if (heavy >= 0) last = begin + heavy;
    before = run.total;
  }
  return last;
}

// Sorts as tokens rank: by falling logit, then by rising id.
__device__ unsigned long long key_of(float logit, int id) {
  const auto bits = static_cast<uint32_t>(__float_as_int(__fadd_rn(logit, 0)));  // one zero
  const uint32_t rising = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(~rising) << 32 | static_cast<uint32_t>(id);
}
__device__ float logit_of(unsigned long long key) {
  const uint32_t rising = ~static_cast<uint32_t>(key >> 32);
  return __int_as_float(static_cast<int>(rising >> 31 != 0 ? rising & 0x7fffffffu : ~rising));
}

/// Logits by their distance from the largest: a bin's rank before all of the next.
struct Bins {
  float max, per_logit;
  __device__ explicit Bins(const Scale& scale)
      : max(scale.max), per_logit(kBins / (kFarthest * scale.temperature)) {}
  /// kBins or more: no weight.
  __device__ int find(float logit) const {
    const float distance = __fsub_rn(max, logit);
    const float bin = distance == 0 ? 0 : __fmul_rn(distance, per_logit);
    return bin < kBins ? static_cast<int>(bin) : kBins;
  }
};

// Fills the bins' counts of the first block; returns the sum of all weights there where top_p wants it.
template <typename Team>
__device__ double count_bins(const Row& row, const Scale& scale, const Bins& bins, Shared& shared) {
  for (int i = thread(); i < kBins; i += kThreads) shared.counts[i] = 0;
  __syncthreads();
  const bool wants_total = shared.draw.top_k <= 0;
  for (int half = 0; half < kHalves; ++half) {
    if (!Team::has(half)) continue;
    double own = 0;
    row.for_each_of(half, [&](int, float logit) {
      const int bin = bins.find(logit);
      if (bin == kBins) return;
      atomicAdd(&shared.counts[bin], 1);
      if (wants_total) own += scale.weight(logit);
    });
    if (wants_total) own = sum(own, shared);
    if (thread() == 0) shared.half_sums[half] = own;
  }
  Team::meet();
  double total = 0;
  if (Team::rank() == 0) {
    for (int half = 0; half < kHalves; ++half) {
      const Shared& others = Team::shared_of(half, shared);
      total += others.half_sums[half];
      if (Team::has(half)) continue;
      for (int i = thread(); i < kBins; i += kThreads) shared.counts[i] += others.counts[i];
    }
    __syncthreads();
  }
  return total;
}

// The first bin with which top_k tokens are complete, or what top_p may want: until those after it cannot
// weigh more than what it leaves out.
__device__ int find_last_bin(double total, Shared& shared) {
  const TokenDraw& draw = shared.draw;
  const int bin = 2 * thread(), counts[2] = {shared.counts[bin], shared.counts[bin + 1]};
  if (draw.top_k > 0) {
    const double both = scan(counts[0] + counts[1], shared);
    const bool first = both - counts[1] >= draw.top_k, second = both >= draw.top_k;
    return min(first_of(first ? bin : second ? bin + 1 : INT32_MAX, shared), kBins - 1);
  }
  constexpr float kStep = kFarthest / kBins, kRounding = 1.001f;
  const double most[2] = {kRounding * static_cast<float>(counts[0]) * expf(-kStep * bin),
                          kRounding * static_cast<float>(counts[1]) * expf(-kStep * (bin + 1))};
  const double both = scan(most[0] + most[1], shared), all = sum(most[0] + most[1], shared);
  const double may_be_left = (1 - static_cast<double>(draw.top_p)) * total - 1e-12 * all;
  const bool first = all - (both - most[1]) <= may_be_left, second = all - both <= may_be_left;
  return min(first_of(first ? bin : second ? bin + 1 : INT32_MAX, shared), kBins - 1);
}

// Bitonic.
__device__ void sort_keys(int count, Shared& shared) {
  int size = 2;
  while (size < count) size *= 2;
  for (int i = count + thread(); i < size; i += kThreads) shared.keys[i] = ~0ull;
  for (int run = 2; run <= size; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int pair = thread(); pair < size / 2; pair += kThreads) {
        const int low = pair / step * 2 * step + pair % step, high = low + step;
        const bool rises = (low & run) == 0;
        const unsigned long long a = shared.keys[low], b = shared.keys[high];
        if ((a > b) == rises) shared.keys[low] = b, shared.keys[high] = a;
      }
    }
  }
  __syncthreads();
}

// Gathers the halves' tokens in bins up to the last one, in any order, into the first block's memory.
template <typename Team>
__device__ void gather_best(const Row& row, const Bins& bins, int last_bin, Shared& shared) {
  if (thread() == 0) shared.gathered = 0;
  __syncthreads();
  for (int half = 0; half < kHalves; ++half)
    if (Team::has(half))
      row.for_each_of(half, [&](int i, float logit) {
        if (bins.find(logit) <= last_bin) shared.keys[atomicAdd(&shared.gathered, 1)] = key_of(logit, i);
      });
  Team::meet();
  if (Team::rank() == 0) {
    const int own = shared.gathered;
    const Shared& others = Team::shared_of(kHalves - 1, shared);
    const int more = Team::has(kHalves - 1) ? 0 : others.gathered;
    for (int i = thread(); i < more; i += kThreads) shared.keys[own + i] = others.keys[i];
    __syncthreads();
    if (thread() == 0) shared.gathered = own + more;
  }
  Team::meet();
}

// From the best ones in the order of their rank; -1 where they are too many, and in blocks other than the
// first.
template <typename Team>
__device__ int draw_from_best(const Row& row, const Scale& scale, Shared& shared) {
  const TokenDraw& draw = shared.draw;
  const Bins bins(scale);
  double total = count_bins<Team>(row, scale, bins, shared);
  if (Team::rank() == 0) {
    const int last_bin = find_last_bin(total, shared);
    const int bin = 2 * thread();
    const double count = sum(
        (bin <= last_bin ? shared.counts[bin] : 0) + (bin < last_bin ? shared.counts[bin + 1] : 0), shared);
    if (thread() == 0) shared.last_bin = count > kMostSorted ? -1 : last_bin;
  }
  Team::meet();
  const int last_bin = Team::shared_of(0, shared).last_bin;
  if (last_bin < 0) {
    Team::meet();  // all have read it
    return -1;
  }
  gather_best<Team>(row, bins, last_bin, shared);
  if (Team::rank() != 0) return -1;
  int kept = shared.gathered;
  sort_keys(kept, shared);
  if (draw.top_k > 0) kept = min(kept, draw.top_k);
  Run run(0, shared, [&](int i) { return i < kept ? scale.weight(logit_of(shared.keys[i])) : 0; });
  if (draw.top_k > 0) total = run.total;
  if (draw.top_p < 1) {
    const double share = static_cast<double>(draw.top_p) * total;
    const int end = run.find(shared, [&](int j) { return run.sums[j] >= share; });
    kept = min(kept, end == INT32_MAX ? kept : end + 1);
  }
  const float least = draw.min_p * 1.0f;  // times the best one's weight
  kept = min(kept, run.find(shared, [&](int j) { return run.weights[j] < least; }));
  const double target = draw.uniform * run.total_of_first(kept, shared);
  for (int j = 0; j < kEach; ++j)
    if (run.index(j) >= kept) run.weights[j] = 0;
  const int found = run.find_above(target, shared), last = run.last_weight(shared);
  return static_cast<int>(static_cast<uint32_t>(shared.keys[found == INT32_MAX ? last : found]));
}

// Each block those of its halves.
template <typename Team>
__device__ void make_edits(const Row& row, const LogitEdit* edits, int count) {
  for (int i = thread(); i < count; i += kThreads) {
    const LogitEdit edit = edits[i];
    if (edit.id < 0 || edit.id >= row.size || !Team::has(edit.id < row.half_size ? 0 : 1)) continue;
    float& logit = row.logits[edit.id];
    const float repeated = logit < 0 ? __fmul_rn(logit, edit.repetition) : __fdiv_rn(logit, edit.repetition);
    logit = __fadd_rn(__fsub_rn(repeated, edit.penalty), edit.bias);
  }
  __syncthreads();
}

// In the first block.
template <typename Team>
__device__ DrawnToken draw_token(const Row& row, const LogitEdit* edits, Shared& shared) {
  using Outcome = DrawnToken::Outcome;
  const TokenDraw& draw = shared.draw;
  Best best = find_best<Team>(row, shared);
  if (!isfinite(best.value)) return {Outcome::kNotFinite, -1, best.value};
  if (draw.num_edits > 0) {
    make_edits<Team>(row, edits + draw.first_edit, draw.num_edits);
    best = find_best<Team>(row, shared);
    if (!isfinite(best.value)) return {Outcome::kNoneLeft, -1, best.value};
  }
  if (draw.temperature == 0 || draw.top_k == 1) return {Outcome::kDrawn, best.id, best.value};
  const Scale scale = {best.value, draw.temperature};
  const bool all = draw.top_k <= 0 && draw.top_p >= 1;
  const int token = all ? draw_from_all<Team>(row, scale, shared) : draw_from_best<Team>(row, scale, shared);
  return {token < 0 ? Outcome::kTooMany : Outcome::kDrawn, token, best.value};
}

template <int kBlocks>
__global__ __launch_bounds__(kThreads) void draw_kernel(const __grid_constant__ DrawArgs a) {
  using Team = Team<kBlocks>;
  __shared__ Shared shared;
  const unsigned draw = blockIdx.x / kBlocks;
  if (thread() == 0) shared.draw = a.draws[draw];
  wait_for_previous_kernel();
  __syncthreads();
  float* logits = a.logits + shared.draw.row * a.stride;
  constexpr int kAtOnce = kHalves * kWarps * 128;
  const Row row = {logits, a.vocab_size, (a.vocab_size + kAtOnce - 1) / kAtOnce * (kAtOnce / kHalves),
                   a.vocab_size % 4 == 0 && reinterpret_cast<uintptr_t>(logits) % 16 == 0};
  const DrawnToken drawn = draw_token<Team>(row, a.edits, shared);
  if (thread() == 0 && Team::rank() == 0) a.drawn[draw] = drawn;
}

// The tokens of draws that went wrong do not matter, but must be some.
__global__ void take_drawn_kernel(int32_t* ids, const int32_t* draws, const DrawnToken* drawn, int count) {
  const int t = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (t < count && draws[t] >= 0) ids[t] = max(drawn[draws[t]].token, 0);
}

// Room for `count` values in host memory that the device can read.
template <typename T>
T* make_room(size_t count, Buffer& buffer, cudaStream_t stream) {
  if (buffer.size() < count * sizeof(T)) {
    check(cudaStreamSynchronize(stream), "wait for the device");
    buffer = Buffer();
    buffer = Buffer(2 * count * sizeof(T), pinned_allocator());
  }
  return reinterpret_cast<T*>(buffer.data());
}

template <typename T>
const T* place(std::span<const T> values, Buffer& buffer, cudaStream_t stream) {
  T* to = make_room<T>(values.size(), buffer, stream);
  std::ranges::copy(values, to);
  return to;
}

}  // namespace

// The kernel reads its arguments from host memory and writes its results there: a few dozen bytes a row,
// which a copy of their own would take longer for.
void CudaKernels::do_start_draws(TensorView logits, std::span<const TokenDraw> draws,
                                 std::span<const LogitEdit> edits) const {
  finish_draws();  // of which nobody may have asked for the outcome
  draw_space_.count = draws.size();
  if (draws.empty()) return;
  const DrawArgs args = {.logits = logits.row<float>(0),
                         .stride = logits.row_stride_bytes() / 4,
                         .vocab_size = static_cast<int>(logits.cols()),
                         .draws = place(draws, draw_space_.draws, stream_),
                         .edits = place(edits, draw_space_.edits, stream_),
                         .drawn = make_room<DrawnToken>(draws.size(), draw_space_.drawn, stream_)};
  const auto rows = static_cast<unsigned>(draws.size());
  if (device_.code.major >= 9 && kHalves * draws.size() <= static_cast<size_t>(device_.num_sms))
    launch_clusters(kHalves, draw_kernel<kHalves>, kHalves * rows, kThreads, 0, stream_, args);
  else
    launch(draw_kernel<1>, rows, kThreads, 0, stream_, args);
  check_launch("start_draws", {static_cast<int64_t>(draws.size()), logits.cols()});
  check(cudaEventRecord(draw_space_.done, stream_), "mark the draws");
}

std::span<const DrawnToken> CudaKernels::do_finish_draws() const {
  if (draw_space_.count == 0) return {};
  check(cudaEventSynchronize(draw_space_.done), "draw tokens");
  return {reinterpret_cast<const DrawnToken*>(draw_space_.drawn.data()), draw_space_.count};
}

void CudaKernels::do_take_drawn(TensorView ids, ConstTensorView draws) const {
  const auto count = static_cast<int>(ids.cols());
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  take_drawn_kernel<<<blocks, kThreads, 0, stream_>>>(
      ids.row<int32_t>(0), draws.row<int32_t>(0),
      reinterpret_cast<const DrawnToken*>(draw_space_.drawn.data()), count);
  check_launch("take_drawn", ids.shape());
}

}  // namespace lmdeploy::cuda
