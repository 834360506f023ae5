// Attention in u8 over a cache of u8.
#include "lmdeploy/kernels/cuda/attention_plain.cuh"

namespace lmdeploy::cuda {
template void run_plain_attention<U8>(AttentionArgs, int64_t, const DeviceLimits&, Scratch&, cudaStream_t);
}  // namespace lmdeploy::cuda
