// Attention on tensor cores: f16, heads of up to 64 elements.
#include "lmdeploy/kernels/cuda/attention_elements.cuh"
#include "lmdeploy/kernels/cuda/attention_narrow.cuh"

namespace lmdeploy::cuda {
template bool run_tiled_attention<Elements<__half, 64>>(AttentionArgs, int64_t, const DeviceLimits&, Scratch&,
                                                        cudaStream_t);
}  // namespace lmdeploy::cuda
