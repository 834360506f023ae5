// Ranks on several devices or on one: each op is one kernel of every rank, whose blocks meet
// (rank_links.cuh), in each other's memory or, for devices that cannot read that, in the host's. What is too
// long for one meeting of each block takes several, or goes by NCCL.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "lmdeploy/core/log.h"
#include "lmdeploy/kernels/communicator.h"
#include "lmdeploy/kernels/cuda/cuda_kernels.h"
#include "lmdeploy/kernels/cuda/nccl.h"
#include "lmdeploy/kernels/cuda/rank_links.cuh"
#include "lmdeploy/kernels/device_support.h"
#include "lmdeploy/kernels/rank_meeting.h"

namespace lmdeploy {
namespace cuda {
namespace {

template <typename T>
using Mail = Pack<T, kWidth<T>>;

template <typename T>
__device__ Mail<T> read(const T* x, int64_t pack, int64_t count, bool wide) {
  constexpr int kEach = kWidth<T>;
  if (wide) return reinterpret_cast<const Mail<T>*>(x)[pack];
  Mail<T> values;
  for (int i = 0; i < kEach; ++i)
    values.values[i] = pack * kEach + i < count ? x[pack * kEach + i] : from_float<T>(0);
  return values;
}

template <typename T>
__device__ void write(T* x, int64_t pack, int64_t count, bool wide, const Mail<T>& values) {
  constexpr int kEach = kWidth<T>;
  if (wide) {
    reinterpret_cast<Mail<T>*>(x)[pack] = values;
    return;
  }
  for (int i = 0; i < kEach; ++i)
    if (pack * kEach + i < count) x[pack * kEach + i] = values.values[i];
}

// The pack of all ranks' mail, added up in the order of the ranks.
template <typename T>
__device__ Mail<T> add_up(const RankLinks& links, uint64_t meeting, int i) {
  constexpr int kEach = kWidth<T>;
  const auto mail = [&](int rank) {
    return reinterpret_cast<const Mail<T>*>(slot_of(links, rank, meeting))[i];
  };
  float sum[kEach];
  Mail<T> values = mail(0);
  for (int j = 0; j < kEach; ++j) sum[j] = to_float(values.values[j]);
  for (int rank = 1; rank < links.num_ranks; ++rank) {
    values = mail(rank);
    for (int j = 0; j < kEach; ++j) sum[j] += to_float(values.values[j]);
  }
  for (int j = 0; j < kEach; ++j) values.values[j] = from_float<T>(sum[j]);
  return values;
}

/// take(i), then put(i, what it gave), for the thread's part of `size` packs: some are on their way at once.
template <typename T, typename Take, typename Put>
__device__ void move_packs(int size, const Take& take, const Put& put) {
  constexpr int kAtOnce = 4;
  for (int first = static_cast<int>(threadIdx.x); first < size; first += kAtOnce * kLinkThreads) {
    Mail<T> packs[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      if (first + k * kLinkThreads < size) packs[k] = take(first + k * kLinkThreads);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      if (first + k * kLinkThreads < size) put(first + k * kLinkThreads, packs[k]);
  }
}

// What is done with x [count] in packs: body(first, size, meeting) for pieces of at most `piece` packs, in
// which all ranks' mail is there to read. False if a rank is missing.
template <typename T, typename Body>
__device__ bool exchange(const RankLinks& links, const T* x, int64_t count, bool wide, int piece,
                         const Body& body) {
  const int64_t packs = ceil_div(count, kWidth<T>);
  uint64_t meeting = links.meetings[blockIdx.x];
  bool all_here = true;
  for (int64_t first = int64_t{blockIdx.x} * piece; all_here && first < packs;
       first += int64_t{gridDim.x} * piece) {
    const int size = static_cast<int>(min(int64_t{piece}, packs - first));
    ++meeting;
    auto* own = reinterpret_cast<Mail<T>*>(slot_of(links, links.rank, meeting));
    move_packs<T>(
        size, [&](int i) { return read(x, first + i, count, wide); },
        [&](int i, const Mail<T>& pack) { own[i] = pack; });
    all_here = meet(links, meeting);
    if (all_here) body(first, size, meeting);
  }
  if (threadIdx.x == 0) links.meetings[blockIdx.x] = meeting;
  return all_here;
}

// Where a rank is missing x becomes NaN: nobody takes it for an answer.
template <typename T>
__global__ void __launch_bounds__(kLinkThreads)
    all_reduce_kernel(T* x, int64_t count, bool wide, int piece, RankLinks links) {
  const auto take = [&](int64_t first, int size, uint64_t meeting) {
    move_packs<T>(
        size, [&](int i) { return add_up<T>(links, meeting, i); },
        [&](int i, const Mail<T>& pack) { write(x, first + i, count, wide, pack); });
  };
  if (exchange(links, x, count, wide, piece, take)) return;
  for (int64_t i = int64_t{blockIdx.x} * kLinkThreads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kLinkThreads)
    x[i] = from_float<T>(nanf(""));
}

struct Gathered {
  Rows<float> out;
  int64_t out_cols, cols;  // of the whole, and of a rank
};

// The elements of a pack of a rank's x, to their places in the whole.
__device__ void place(const Gathered& g, int rank, int64_t pack, int64_t count, const Mail<float>& values) {
  for (int j = 0; j < kWidth<float>; ++j) {
    const int64_t element = pack * kWidth<float> + j, col = rank * g.cols + element % g.cols;
    if (element < count && col < g.out_cols) g.out.row(element / g.cols)[col] = values.values[j];
  }
}

__global__ void __launch_bounds__(kLinkThreads)
    gather_kernel(Gathered g, const float* x, int64_t count, bool wide, int piece, RankLinks links) {
  const auto take = [&](int64_t first, int size, uint64_t meeting) {
    if (links.rank != 0) return;
    for (int rank = 0; rank < links.num_ranks; ++rank) {
      const auto* mail = reinterpret_cast<const Mail<float>*>(slot_of(links, rank, meeting));
      for (int i = threadIdx.x; i < size; i += kLinkThreads) place(g, rank, first + i, count, mail[i]);
    }
  };
  if (exchange(links, x, count, wide, piece, take) || links.rank != 0) return;
  const int64_t rows = count / g.cols;
  for (int64_t i = int64_t{blockIdx.x} * kLinkThreads + threadIdx.x; i < rows;
       i += int64_t{gridDim.x} * kLinkThreads)
    g.out.row(i)[0] = nanf("");
}

/// How `count` elements are dealt out to blocks: the same on all ranks.
struct Pieces {
  int packs;  // of a piece
  int blocks;

  template <typename T>
  static Pieces of(int64_t count) {
    const int64_t packs = ceil_div(count, kWidth<T>);
    const int64_t each = std::clamp<int64_t>(ceil_div(packs, kLinkThreads * kLinkBlocks), 1, kMostPacks);
    const int64_t piece = each * kLinkThreads;
    return {static_cast<int>(piece),
            static_cast<int>(std::min<int64_t>(ceil_div(packs, piece), kLinkBlocks))};
  }
};

template <typename T>
bool is_whole(const std::byte* x, int64_t count) {
  return reinterpret_cast<uintptr_t>(x) % 16 == 0 && count % kWidth<T> == 0;
}

class CudaRankGroup;

class CudaCommunicator final : public Communicator {
 public:
  CudaCommunicator(CudaRankGroup& group, const CudaKernels& kernels, int64_t rank)
      : group_(group), kernels_(kernels), rank_(rank) {}
  int64_t rank() const override { return rank_; }
  void all_reduce_sum(TensorView x) override;
  void gather_columns(TensorView out, ConstTensorView x) override;

 private:
  template <typename Launch>
  void together(const char* op, const Launch& launch_kernel);
  bool is_recording() const;

  CudaRankGroup& group_;
  const CudaKernels& kernels_;
  const int64_t rank_;
};

class CudaRankGroup final : public RankGroup {
 public:
  CudaRankGroup(std::span<const CudaKernels* const> kernels, const RankOptions& options);
  ~CudaRankGroup() override;

  int64_t num_ranks() const override { return meeting_.num_ranks(); }
  Communicator& communicator(int64_t rank) override { return communicators_[static_cast<size_t>(rank)]; }
  void enter(int64_t rank) const override {
    check(cudaSetDevice(kernels_[static_cast<size_t>(rank)]->device()), "go to a rank's device");
  }
  std::chrono::milliseconds timeout() const override { return meeting_.timeout(); }
  std::string what_to_try() const override { return meeting_.what_to_try(); }
  void begin_step(int64_t step) override;
  void leave(int64_t rank, const std::string& why) override;

  const RankLinks& links(int64_t rank) const { return links_[static_cast<size_t>(rank)]; }
  /// For sums of so many bytes; nullptr: by the links.
  Nccl* nccl_for(int64_t bytes) const {
    constexpr int64_t kLeast = int64_t{4} << 20;
    return bytes > kLeast ? nccl_.get() : nullptr;
  }
  /// On the host.
  void meet(int64_t rank, const char* op);

 private:
  struct Memory {
    Buffer mail, told;  // on the rank's device, or in host memory
    Buffer meetings;    // on the rank's device
  };
  void reset();
  /// Nobody waits for a rank on a device any more.
  void give_up();
  LinkState& state() const { return *reinterpret_cast<LinkState*>(state_.data()); }

  const std::vector<const CudaKernels*> kernels_;
  const bool through_host_;
  RankMeeting meeting_;
  std::vector<CudaCommunicator> communicators_;
  std::vector<Memory> memory_;  // by rank
  Buffer state_;
  std::vector<RankLinks> links_;  // by rank
  std::unique_ptr<Nccl> nccl_;
};

// Recorded calls are made without the host. Otherwise all ranks are there before a kernel waits for another,
// and have started theirs before one goes on: while a kernel waits, no thread may allocate or free device
// memory, which waits for it.
template <typename Launch>
void CudaCommunicator::together(const char* op, const Launch& launch_kernel) {
  const bool on_host = !is_recording();
  if (on_host) group_.meet(rank_, op);
  launch_kernel();
  check(cudaGetLastError(), op);
  if (on_host) group_.meet(rank_, op);
}

bool CudaCommunicator::is_recording() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(kernels_.stream(), &status), "ask whether a step is recorded");
  return status != cudaStreamCaptureStatusNone;
}

void CudaCommunicator::all_reduce_sum(TensorView x) {
  LMD_CHECK(x.contiguous(), "rows of ", x.row_stride_bytes(), " bytes");
  const int64_t count = x.shape().numel();
  if (count == 0) return;
  together("all_reduce_sum", [&] {
    if (Nccl* nccl = group_.nccl_for(row_bytes(x.dtype(), count)))
      return nccl->all_reduce_sum(rank_, x.data(), count, x.dtype(), kernels_.stream());
    with_type(x.dtype(), [&]<typename T>(Type<T>) {
      const Pieces pieces = Pieces::of<T>(count);
      all_reduce_kernel<T><<<pieces.blocks, kLinkThreads, 0, kernels_.stream()>>>(
          reinterpret_cast<T*>(x.data()), count, is_whole<T>(x.data(), count), pieces.packs,
          group_.links(rank_));
    });
  });
}

void CudaCommunicator::gather_columns(TensorView out, ConstTensorView x) {
  LMD_CHECK(x.contiguous() && x.dtype() == DType::kF32, "rows of ", x.row_stride_bytes(), " bytes");
  const int64_t count = x.shape().numel();
  if (count == 0) return;
  together("gather_columns", [&] {
    const Pieces pieces = Pieces::of<float>(count);
    const Gathered gathered = {rows_of<float>(out), rank_ == 0 ? out.cols() : 0, x.cols()};
    gather_kernel<<<pieces.blocks, kLinkThreads, 0, kernels_.stream()>>>(
        gathered, reinterpret_cast<const float*>(x.data()), count, is_whole<float>(x.data(), count),
        pieces.packs, group_.links(rank_));
  });
}

/// Lets `own` read the memory of `other`; else why not.
std::string problem_with_peer(int own, int other) {
  if (own == other) return "";
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, own, other), "ask for peer access");
  if (can == 0) return cat("GPU ", own, " cannot read the memory of GPU ", other);
  const OnDevice here(own);
  const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
  if (status == cudaSuccess) return "";
  cudaGetLastError();  // forgets it
  if (status == cudaErrorPeerAccessAlreadyEnabled) return "";
  return cat("GPU ", own, " may not read the memory of GPU ", other, " (", cudaGetErrorString(status), ")");
}

/// Whether each device reads the memory of each other one. The log says why not.
bool let_in_peers(std::span<const CudaKernels* const> kernels) {
  for (const CudaKernels* own : kernels) {
    for (const CudaKernels* other : kernels) {
      const std::string problem = problem_with_peer(own->device(), other->device());
      if (problem.empty()) continue;
      LMD_LOG(
          kWarning, "tensor parallelism: ", problem,
          " (nvidia-smi topo -p2p r): peer access is off, GPUs add up in host memory, which takes longer");
      return false;
    }
  }
  return true;
}

CudaRankGroup::CudaRankGroup(std::span<const CudaKernels* const> kernels, const RankOptions& options)
    : kernels_(kernels.begin(), kernels.end()),
      through_host_(options.through_host || !let_in_peers(kernels)),
      meeting_(static_cast<int64_t>(kernels.size()), options.timeout,
               advice_for_ranks(options.nccl, through_host_)),
      memory_(kernels.size()),
      state_(sizeof(LinkState), pinned_allocator()) {
  RankLinks links = {};
  links.state = &state();
  links.timeout_ns = std::chrono::nanoseconds(options.timeout).count();
  links.num_ranks = static_cast<int>(kernels.size());
  for (size_t rank = 0; rank < kernels.size(); ++rank) {
    communicators_.emplace_back(*this, *kernels[rank], static_cast<int64_t>(rank));
    Allocator& on_device = device_allocator(kernels[rank]->device());
    Allocator& seen_by_all = through_host_ ? pinned_allocator() : on_device;
    Memory& own = memory_[rank];
    own.mail = Buffer(kMailBytes, seen_by_all);
    own.told = Buffer(sizeof(uint64_t) * kLinkBlocks * kMostLinked, seen_by_all);
    own.meetings = Buffer(sizeof(uint64_t) * kLinkBlocks, on_device);
    links.mail[rank] = own.mail.data();
    links.told[rank] = reinterpret_cast<uint64_t*>(own.told.data());
  }
  for (size_t rank = 0; rank < kernels.size(); ++rank) {
    links.rank = static_cast<int>(rank);
    links.meetings = reinterpret_cast<uint64_t*>(memory_[rank].meetings.data());
    links_.push_back(links);
  }
  reset();
  if (!options.nccl) return;
  std::vector<int> devices;
  for (const CudaKernels* each : kernels) devices.push_back(each->device());
  nccl_ = std::make_unique<Nccl>(devices, options.timeout);
}

CudaRankGroup::~CudaRankGroup() {
  for (const CudaKernels* kernels : kernels_) cudaStreamSynchronize(kernels->stream());
}

// While no rank computes.
void CudaRankGroup::reset() {
  for (const CudaKernels* kernels : kernels_)
    check(cudaStreamSynchronize(kernels->stream()), "wait for a rank");
  for (size_t rank = 0; rank < kernels_.size(); ++rank) {
    const OnDevice own(kernels_[rank]->device());
    const Memory& memory = memory_[rank];
    check(cudaMemset(memory.told.data(), 0, memory.told.size()), "clear what ranks have told");
    check(cudaMemset(memory.meetings.data(), 0, memory.meetings.size()), "clear meetings");
    check(cudaDeviceSynchronize(), "wait for a device");
  }
  state().left = 0;
  state().missing = 0;
  if (nccl_ == nullptr || !nccl_->aborted()) return;
  nccl_->restart();
  for (const CudaKernels* kernels : kernels_) kernels->forget_recordings();
}

void CudaRankGroup::begin_step(int64_t step) {
  const int missing = state().missing;
  if (missing != 0 || state().left != 0) reset();
  meeting_.begin_step(step);
  if (missing != 0)
    throw MissingRank(cat("tensor parallelism: rank ", missing - 1, " did not come within ",
                          timeout().count(), " ms, on its GPU, before step ", step, what_to_try()));
}

void CudaRankGroup::leave(int64_t rank, const std::string& why) {
  give_up();
  meeting_.leave(rank, why);
}

void CudaRankGroup::give_up() {
  state().left = 1;
  if (nccl_ != nullptr) nccl_->abort();
}

void CudaRankGroup::meet(int64_t rank, const char* op) {
  try {
    meeting_.meet(rank, op);
  } catch (const MissingRank&) {
    give_up();
    throw;
  }
}

}  // namespace
}  // namespace cuda

std::unique_ptr<RankGroup> make_cuda_rank_group(std::span<const Kernels* const> kernels,
                                                const RankOptions& options) {
  LMD_CHECK(kernels.size() <= cuda::kMostLinked, kernels.size(), " ranks");
  std::vector<const cuda::CudaKernels*> own;
  for (const Kernels* each : kernels) {
    own.push_back(dynamic_cast<const cuda::CudaKernels*>(each));
    LMD_CHECK(own.back() != nullptr, each->name());
  }
  return std::make_unique<cuda::CudaRankGroup>(own, options);
}

}  // namespace lmdeploy
