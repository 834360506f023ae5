// Attention of prompts on Hopper: f16 and a cache in 8 bits, heads of 128 elements.
#include "lmdeploy/kernels/cuda/attention_prompt_codes.cuh"

namespace lmdeploy::cuda {
template void run_prompt_attention<Codes<__half, 128, 8>>(const AttentionArgs&, int64_t, int, cudaStream_t);
}  // namespace lmdeploy::cuda
