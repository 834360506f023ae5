// Attention in u4 over a cache of u4.
#include "lmdeploy/kernels/cuda/attention_plain.cuh"

namespace lmdeploy::cuda {
template void run_plain_attention<U4>(AttentionArgs, int64_t, const DeviceLimits&, Scratch&, cudaStream_t);
}  // namespace lmdeploy::cuda
