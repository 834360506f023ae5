// linear for dozens to hundreds of tokens in f16 with weights of 4 bits, on Hopper.
#include "lmdeploy/kernels/cuda/group_integers.cuh"

namespace lmdeploy::cuda {
template void run_group_integers<__half, 4>(const FewTokensArgs&, const IntegerFormat&, const Meeting&,
                                            cudaStream_t);
}  // namespace lmdeploy::cuda
