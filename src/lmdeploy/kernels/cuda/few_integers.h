// linear and expert_linear with weights of 4 or 8 bits (integer_weight.h) on tensor cores.
#pragma once

#include "lmdeploy/kernels/cuda/few_tokens.h"
#include "lmdeploy/kernels/cuda/linear_tiles.h"

namespace lmdeploy::cuda {

/// Beyond these weights are better widened once, for the library, where there is no run_group_integers().
constexpr int kMostIntegerTokens = 64;

/// For up to 16 tokens at a time. The format has kBits; x is of T, with rows of whole 16 bytes. With args.glu
/// half the rows are a multiple of 16. A token's bits are the same in any company.
template <typename T, int kBits>
void run_few_integers(const FewTokensArgs& args, const IntegerFormat& format, const DeviceLimits& device,
                      cudaStream_t stream);

/// The same of all experts; args.weight and args.bias are not looked at.
template <typename T, int kBits>
void run_expert_integers(const FewTokensArgs& args, const ExpertWeights& experts, const IntegerFormat& format,
                         cudaStream_t stream);

/// What blocks that share a product's columns need.
struct Meeting {
  int num_sms;
  Scratch* scratch;
  int32_t* arrivals;  // [kArrivals], 0 before and after
};

/// For 17 to kMostIntegerTokens tokens. A token's bits are the same among any number of these.
template <typename T, int kBits>
void run_many_integers(const FewTokensArgs& args, const IntegerFormat& format, const Meeting& meeting,
                       cudaStream_t stream);

/// For 17 tokens and more, where suits_groups() says so. A token's bits depend on how many there are.
template <typename T, int kBits>
void run_group_integers(const FewTokensArgs& args, const IntegerFormat& format, const Meeting& meeting,
                        cudaStream_t stream);
/// Whether run_group_integers() can, and beats run_many_integers() and, beyond kMostIntegerTokens, the
/// library with widened weights.
inline bool suits_groups(int64_t tokens, const IntegerFormat& format, const DeviceLimits& device) {
  constexpr int64_t kLeastTokens = 33, kMost = 256, kMostOfBytes = 128;  // widening bytes is quick
  constexpr int kSharedBytes = 205 << 10;
  return device.code.has_wgmma && device.shared_bytes >= kSharedBytes &&
         format.scale != GroupScale::kScaleMin && tokens >= kLeastTokens &&
         tokens <= (format.bits == 4 || format.scale == GroupScale::kE4M3 ? kMost : kMostOfBytes);
}

}  // namespace lmdeploy::cuda
