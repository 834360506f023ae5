// linear for 17 to 64 tokens in bf16 with weights of 8 bits.
#include "lmdeploy/kernels/cuda/many_integers.cuh"

namespace lmdeploy::cuda {
template void run_many_integers<__nv_bfloat16, 8>(const FewTokensArgs&, const IntegerFormat&, const Meeting&,
                                                  cudaStream_t);
}  // namespace lmdeploy::cuda
