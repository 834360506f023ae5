// Attention in f32 over a cache of f32.
#include "lmdeploy/kernels/cuda/attention_plain.cuh"

namespace lmdeploy::cuda {
template void run_plain_attention<float>(AttentionArgs, int64_t, const DeviceLimits&, Scratch&, cudaStream_t);
}  // namespace lmdeploy::cuda
