// linear for few tokens in f16.
#include "lmdeploy/kernels/cuda/few_tokens.cuh"

namespace lmdeploy::cuda {
template void run_few_tokens<__half>(const FewTokensArgs&, const DeviceLimits&, cudaStream_t);
}  // namespace lmdeploy::cuda
