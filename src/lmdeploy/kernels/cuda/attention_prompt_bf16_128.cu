// Attention of prompts on Hopper: bf16, heads of up to 128 elements.
#include "lmdeploy/kernels/cuda/attention_prompt_elements.cuh"

namespace lmdeploy::cuda {
template void run_prompt_attention<Elements<__nv_bfloat16, 128>>(const AttentionArgs&, int64_t, int,
                                                                 cudaStream_t);
}  // namespace lmdeploy::cuda
