// Attention in f32 over a cache of bf16.
#include "lmdeploy/kernels/cuda/attention_plain.cuh"

namespace lmdeploy::cuda {
template void run_plain_attention<__nv_bfloat16>(AttentionArgs, int64_t, const DeviceLimits&, Scratch&,
                                                 cudaStream_t);
}  // namespace lmdeploy::cuda
