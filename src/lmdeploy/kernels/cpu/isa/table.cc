// The table of one instruction set.
#include "lmdeploy/kernels/cpu/isa/functions.h"
#include "lmdeploy/kernels/cpu/isa/micro.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

#if LMDEPLOY_ISA_LEVEL == 0
constexpr auto kLinearInt8 = nullptr;
#else
constexpr auto kLinearInt8 = linear_int8;
#endif

constexpr IsaOps kOps = {.token_tile = kTokenTile,
                         .float_tile = kFloatTile,
                         .decoded_tile = kTokenTile,
                         .unsigned_q = false,
                         .pack_tokens = pack_tokens,
                         .linear = linear,
                         .linear_int8 = kLinearInt8,
                         .linear_bf16 = nullptr,
                         .pack_queries = pack_queries,
                         .attention_span = attention_span,
                         .merge_spans = merge_spans,
                         .finish_row = finish_row,
                         .norm = norm,
                         .activate = activate,
                         .glu = glu,
                         .clamped_glu = clamped_glu,
                         .add = add,
                         .scale = scale,
                         .clamp = clamp,
                         .soft_cap = soft_cap,
                         .weighted_sum = weighted_sum,
                         .rope = rope,
                         .store_row = store_row,
                         .quantize_row = quantize_row,
                         .turn_row = turn_row};

}  // namespace

const IsaOps& ops() { return kOps; }

}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
