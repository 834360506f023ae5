// linear for dozens to hundreds of tokens in bf16 with weights of 4 bits, on Hopper.
#include "lmdeploy/kernels/cuda/group_integers.cuh"

namespace lmdeploy::cuda {
template void run_group_integers<__nv_bfloat16, 4>(const FewTokensArgs&, const IntegerFormat&, const Meeting&,
                                                   cudaStream_t);
}  // namespace lmdeploy::cuda
