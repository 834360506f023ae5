// Calls of ops as a CUDA graph: one launch for all of them.
#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/cuda/cuda_check.h"
#include "lmdeploy/kernels/cuda/cuda_kernels.h"

namespace lmdeploy::cuda {
namespace {

class GraphRecording final : public Recording {
 public:
  GraphRecording(cudaGraphExec_t executable, cudaStream_t stream, const CudaKernels& kernels)
      : stream_(stream),
        kernels_(kernels),
        scratch_version_(kernels.scratch_version()),
        executable_(executable) {}
  ~GraphRecording() override { cudaGraphExecDestroy(executable_); }
  GraphRecording(const GraphRecording&) = delete;
  GraphRecording& operator=(const GraphRecording&) = delete;

  bool run() override {
    if (kernels_.scratch_version() != scratch_version_) return false;
    check(cudaGraphLaunch(executable_, stream_), "run the graph of a step");
    return true;
  }

 private:
  const cudaStream_t stream_;
  const CudaKernels& kernels_;
  const int64_t scratch_version_;
  const cudaGraphExec_t executable_;
};

}  // namespace

std::unique_ptr<Recording> CudaKernels::record(const std::function<void()>& ops) const {
  const int64_t version = scratch_version();
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "record a step");
  cudaGraph_t graph = nullptr;
  try {
    ops();
  } catch (...) {
    cudaStreamEndCapture(stream_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();  // forgets it: the ops' own error is thrown
    throw;
  }
  check(cudaStreamEndCapture(stream_, &graph), "record a step");
  const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, decltype(&cudaGraphDestroy)> owner(
      graph, &cudaGraphDestroy);
  LMD_CHECK(scratch_version() == version, "ops that are recorded have grown their scratch memory");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  if (status == cudaErrorMemoryAllocation) {  // calls one by one need none
    cudaGetLastError();
    return nullptr;
  }
  check(status, "make a graph of a step");
  return std::make_unique<GraphRecording>(executable, stream_, *this);
}

}  // namespace lmdeploy::cuda
