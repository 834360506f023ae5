// linear and expert_linear for few tokens in bf16 with weights of 4 bits.
#include "lmdeploy/kernels/cuda/few_integers.cuh"

namespace lmdeploy::cuda {
template void run_few_integers<__nv_bfloat16, 4>(const FewTokensArgs&, const IntegerFormat&,
                                                 const DeviceLimits&, cudaStream_t);
template void run_expert_integers<__nv_bfloat16, 4>(const FewTokensArgs&, const ExpertWeights&,
                                                    const IntegerFormat&, cudaStream_t);
}  // namespace lmdeploy::cuda
