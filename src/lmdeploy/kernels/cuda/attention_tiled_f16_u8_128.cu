// Attention on tensor cores: f16 and a cache in 8 bits, heads of 128 elements.
#include "lmdeploy/kernels/cuda/attention_spans.cuh"

namespace lmdeploy::cuda {
template bool run_tiled_attention<Codes<__half, 128, 8>>(AttentionArgs, int64_t, const DeviceLimits&,
                                                         Scratch&, cudaStream_t);
}  // namespace lmdeploy::cuda
