// libnccl.so.2 through dlopen. The few functions are declared here, after the API documentation of NCCL 2.
#include "lmdeploy/kernels/cuda/nccl.h"

#include <dlfcn.h>

#include <cstdlib>
#include <future>
#include <string>
#include <type_traits>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/thread_pool.h"
#include "lmdeploy/kernels/communicator.h"

namespace lmdeploy::cuda {
namespace {

// ncclDataType_t and ncclRedOp_t.
constexpr int kFloat16 = 6, kFloat32 = 7, kBfloat16 = 9, kSum = 0;

void* open_library() {
  ::setenv("NCCL_NVLS_ENABLE", "0",
           /*overwrite=*/0);  // sums through NVLink's switch need rights that are rare
  constexpr const char* kNames[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"};
  std::string problem;
  for (const char* name : kNames) {
    if (void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
    if (problem.empty()) problem = ::dlerror();
  }
  throw Error(
      ErrorCode::kUnsupported,
      cat("not supported: communicator nccl, because there is no NCCL 2: ", problem, "; use cuda-ipc"));
}

int type_number(DType dtype) {
  return dtype == DType::kF16 ? kFloat16 : dtype == DType::kBF16 ? kBfloat16 : kFloat32;
}

}  // namespace

/// The functions that are called; communicators are pointers, results 0 or an error's number.
struct NcclLibrary {
  int (*init_all)(void** communicators, int count, const int* devices);
  int (*all_reduce)(const void* in, void* out, size_t count, int type, int op, void* communicator,
                    cudaStream_t stream);
  int (*abort)(void* communicator);
  int (*destroy)(void* communicator);
  const char* (*error_string)(int result);

  NcclLibrary() {
    void* library = open_library();
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      if (function == nullptr) throw Error(ErrorCode::kUnsupported, cat("NCCL has no ", name));
    };
    find(init_all, "ncclCommInitAll");
    find(all_reduce, "ncclAllReduce");
    find(abort, "ncclCommAbort");
    find(destroy, "ncclCommDestroy");
    find(error_string, "ncclGetErrorString");
  }
  void check(int result, const char* what) const {
    if (result != 0) throw Error(ErrorCode::kInternal, cat("NCCL: ", what, ": ", error_string(result)));
  }
  static const NcclLibrary& opened() {
    static const NcclLibrary library;
    return library;
  }
};

Nccl::Nccl(std::span<const int> devices, std::chrono::milliseconds timeout)
    : library_(NcclLibrary::opened()),
      devices_(devices.begin(), devices.end()),
      timeout_(timeout),
      communicators_(devices.size()) {
  restart();
}

Nccl::~Nccl() {
  if (aborted_) return;
  for (void* communicator : communicators_) library_.destroy(communicator);
}

// NCCL tries how devices reach each other, and may never come back: then its thread is left to itself, with
// all that it uses.
void Nccl::restart() {
  struct Start {
    std::vector<int> devices;
    std::vector<void*> communicators;
    std::promise<int> result;
  };
  const auto start = std::make_shared<Start>();
  start->devices = devices_;
  start->communicators.resize(devices_.size());
  std::future<int> result = start->result.get_future();
  start_thread([start, &library = library_] {
    start->result.set_value(library.init_all(start->communicators.data(),
                                             static_cast<int>(start->devices.size()), start->devices.data()));
  }).detach();
  if (result.wait_for(timeout_) != std::future_status::ready)
    throw Error(
        ErrorCode::kInternal,
        cat("tensor parallelism: NCCL did not start on ", devices_.size(), " GPUs within ", timeout_.count(),
            " ms; try NCCL_P2P_DISABLE=1 in the environment, or communicator cuda-ipc or host"));
  library_.check(result.get(), "start");
  communicators_ = start->communicators;
  aborted_ = false;
}

void Nccl::all_reduce_sum(int64_t rank, void* x, int64_t count, DType dtype, cudaStream_t stream) {
  if (aborted_) throw MissingRank("tensor parallelism: another rank has failed");
  library_.check(library_.all_reduce(x, x, static_cast<size_t>(count), type_number(dtype), kSum,
                                     communicators_[static_cast<size_t>(rank)], stream),
                 "all_reduce_sum");
}

void Nccl::abort() {
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  aborted_ = true;
  for (void* communicator : communicators_) library_.abort(communicator);
}

}  // namespace lmdeploy::cuda
