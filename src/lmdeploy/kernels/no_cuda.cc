// What stands in for the CUDA back end in a build without it.
#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/communicator.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {

int cuda_toolkit_version() { return 0; }

CudaStatus cuda_status() { return {.devices = {}, .problem = "this build has no CUDA back end"}; }

std::unique_ptr<Kernels> make_cuda_kernels(std::shared_ptr<ThreadPool>, DType, const CudaOptions&) {
  throw Error(ErrorCode::kUnsupported, cuda_status().problem);
}

std::unique_ptr<RankGroup> make_cuda_rank_group(std::span<const Kernels* const>, const RankOptions&) {
  throw Error(ErrorCode::kUnsupported, cuda_status().problem);
}

}  // namespace lmdeploy
