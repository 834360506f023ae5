// linear for few tokens in bf16.
#include "lmdeploy/kernels/cuda/few_tokens.cuh"

namespace lmdeploy::cuda {
template void run_few_tokens<__nv_bfloat16>(const FewTokensArgs&, const DeviceLimits&, cudaStream_t);
}  // namespace lmdeploy::cuda
