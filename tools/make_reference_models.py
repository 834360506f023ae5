#!/usr/bin/env python3
"""Makes tiny random checkpoints with the real library, and what it computes from them.

    make_reference_models.py OUT [--seed N] [--only NAME ...]

Needs torch and transformers; nothing is downloaded. Each folder holds config.json, model.safetensors (bf16, or what the
library writes) and expected.safetensors: for k = 0, 1, 2 ids_k [T] i64 (T = 1, 7, 45), logits_k [T, vocab] f32 and greedy_k
[12] i64, a full forward pass at each step. The arithmetic is float32, attention "eager".
`build/release/tests/models/compare_reference OUT/*` judges our own.
"""
import argparse
import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file

COMMON = dict(vocab_size=263, hidden_size=60, intermediate_size=88, num_hidden_layers=3, num_attention_heads=6,
              num_key_value_heads=2, head_dim=20, max_position_embeddings=128, tie_word_embeddings=False,
              bos_token_id=1, eos_token_id=2, pad_token_id=0)
DEFAULT_ROPE = dict(rope_type="default", rope_theta=10000.0)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)
DEEPSEEK_YARN = dict(YARN, mscale=0.7, mscale_all_dim=1.3, beta_fast=32, beta_slow=1)
# The root of the hidden size scales embeddings, in the dtype of the run: 10 is the same in all.
GEMMA = dict(COMMON, hidden_size=100, num_attention_heads=5, num_key_value_heads=1, tie_word_embeddings=True)
EXPERTS = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=36)
LATENT = dict(kv_lora_rank=28, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=20, n_routed_experts=8,
              num_experts_per_tok=3, moe_intermediate_size=36, n_shared_experts=2, first_k_dense_replace=1,
              num_key_value_heads=6, head_dim=None)
GPT2 = dict(vocab_size=263, n_embd=60, n_layer=3, n_head=6, n_positions=128, bos_token_id=1, eos_token_id=2)


def cases():
    """name -> (model type, config)."""
    return {
        "llama_biases": ("llama", dict(COMMON, attention_bias=True, mlp_bias=True)),
        "llama_deep": ("llama", dict(COMMON, num_hidden_layers=61, hidden_size=20, intermediate_size=24,
                                     num_attention_heads=1, num_key_value_heads=1)),
        "llama_one_layer": ("llama", dict(COMMON, num_hidden_layers=1, head_dim=112)),
        "mistral_window": ("mistral", dict(COMMON, sliding_window=9)),
        "mixtral_window": ("mixtral", dict(COMMON, sliding_window=9, num_local_experts=5, num_experts_per_tok=3)),
        "qwen2_window": ("qwen2", dict(COMMON, head_dim=None, use_sliding_window=True, sliding_window=9,
                                       max_window_layers=1)),
        "qwen2_yarn": ("qwen2", dict(COMMON, head_dim=None, rope_parameters=YARN)),
        "qwen3_odd": ("qwen3", dict(COMMON, attention_bias=True)),
        "qwen2_moe_renormalised": ("qwen2_moe", dict(COMMON, head_dim=None, **EXPERTS, norm_topk_prob=True,
                                                     shared_expert_intermediate_size=44)),
        "qwen3_moe_mixed": ("qwen3_moe", dict(COMMON, **EXPERTS, decoder_sparse_step=2, norm_topk_prob=False)),
        "gemma_odd": ("gemma", GEMMA),
        "gemma2_odd": ("gemma2", dict(GEMMA, sliding_window=9, query_pre_attn_scalar=31,
                                      attn_logit_softcapping=5.0, final_logit_softcapping=3.0)),
        "gemma3_linear": ("gemma3_text", dict(
            GEMMA, num_hidden_layers=7, sliding_window=9, query_pre_attn_scalar=31,
            rope_parameters={"full_attention": dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                             "sliding_attention": DEFAULT_ROPE})),
        "deepseek_v2_groups": ("deepseek_v2", dict(
            COMMON, **{**LATENT, "q_lora_rank": 24}, topk_method="group_limited_greedy", n_group=4, topk_group=2,
            routed_scaling_factor=1.7, norm_topk_prob=False)),
        "deepseek_v2_yarn": ("deepseek_v2", dict(COMMON, **LATENT, q_lora_rank=None, topk_method="greedy",
                                                 routed_scaling_factor=1.0, rope_parameters=DEEPSEEK_YARN)),
        "deepseek_v3_yarn": ("deepseek_v3", dict(COMMON, **LATENT, q_lora_rank=24, n_group=4, topk_group=2,
                                                 routed_scaling_factor=2.5, norm_topk_prob=True,
                                                 rope_parameters=DEEPSEEK_YARN)),
        "phi_norms": ("phi", dict(COMMON, head_dim=None, hidden_size=96, qk_layernorm=True, partial_rotary_factor=0.5)),
        "phi3_longrope": ("phi3", dict(
            COMMON, head_dim=None, hidden_size=96, original_max_position_embeddings=32,
            rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=32,
                                 short_factor=[1 + 0.05 * i for i in range(8)],
                                 long_factor=[1.5 + 0.3 * i for i in range(8)]))),
        "phi3_window": ("phi3", dict(COMMON, head_dim=None, hidden_size=96, sliding_window=9)),
        "stablelm_parallel": ("stablelm", dict(COMMON, head_dim=None, hidden_size=96, use_parallel_residual=True,
                                               qk_layernorm=True, partial_rotary_factor=0.25)),
        "cohere_norms": ("cohere", dict(COMMON, head_dim=None, use_qk_norm=True, logit_scale=0.3,
                                        tie_word_embeddings=True)),
        "olmo2_odd": ("olmo2", dict(COMMON, head_dim=None)),
        "olmoe_clip": ("olmoe", dict(COMMON, head_dim=None, num_experts=5, num_experts_per_tok=2, clip_qkv=0.8,
                                     norm_topk_prob=True)),
        "granite_odd": ("granite", dict(COMMON, head_dim=None, embedding_multiplier=3.0, attention_multiplier=0.3,
                                        residual_multiplier=0.4, logits_scaling=2.5, attention_bias=True)),
        "smollm3_interval": ("smollm3", dict(COMMON, head_dim=None, num_hidden_layers=5, no_rope_layer_interval=2,
                                             tie_word_embeddings=True)),
        "starcoder2_window": ("starcoder2", dict(COMMON, head_dim=None, sliding_window=9, tie_word_embeddings=True)),
        "starcoder2_no_bias": ("starcoder2", dict(COMMON, head_dim=None, use_bias=False)),
        "gpt_oss_odd": ("gpt_oss", dict(COMMON, num_local_experts=5, num_experts_per_tok=2, sliding_window=9,
                                        layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
        "glm_odd": ("glm", dict(COMMON, attention_bias=True)),
        "glm4_odd": ("glm4", dict(COMMON, attention_bias=False)),
        "gpt_neox_sequential": ("gpt_neox", dict(COMMON, head_dim=None, hidden_size=96, use_parallel_residual=False,
                                                 rotary_pct=0.5)),
        "gpt_bigcode_multi_query": ("gpt_bigcode", dict(GPT2, n_inner=100)),
        "gpt_bigcode_per_head": ("gpt_bigcode", dict(GPT2, multi_query=False)),
        "gpt2_inner": ("gpt2", dict(GPT2, n_inner=100)),
        "falcon_11b": ("falcon", dict(COMMON, head_dim=None, hidden_size=96, new_decoder_architecture=True, num_kv_heads=2,
                                      num_ln_in_parallel_attn=1, ffn_hidden_size=100)),
        "falcon_seven_heads": ("falcon", dict(COMMON, head_dim=None, hidden_size=112, num_attention_heads=7, multi_query=True,
                                              new_decoder_architecture=False, parallel_attn=True)),
        "falcon_alibi_heads": ("falcon", dict(COMMON, head_dim=None, hidden_size=96, multi_query=False, alibi=True, bias=True,
                                              new_decoder_architecture=False, parallel_attn=False)),
        "dbrx_p2": ("dbrx", dict(d_model=60, n_heads=6, n_layers=3, max_seq_len=128, vocab_size=263,
                                 bos_token_id=1, eos_token_id=2, pad_token_id=0,
                                 attn_config=dict(kv_n_heads=2, clip_qkv=0.8, rope_theta=20000.0),
                                 ffn_config=dict(hidden_size=60, ffn_hidden_size=44, moe_num_experts=5, moe_top_k=3,
                                                 moe_normalize_expert_weights=2.0,
                                                 ffn_act_fn=dict(name="silu")))),
    }


def make_config(model_type, values):
    return transformers.AutoConfig.for_model(model_type, **{k: v for k, v in values.items() if v is not None})


def randomise(model, generator):
    """Values that keep the size of hidden states, norms and biases that matter; rounded to bf16."""
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if "norm" in name or name.split(".")[-2] in ("ln_1", "ln_2", "ln_f", "ln_attn", "ln_mlp"):
            is_offset = type(model).__name__.startswith("Gemma")
            value = noise * 0.2 + (0 if name.endswith("bias") or is_offset else 1)
        elif p.dim() < 2:
            value = noise * 0.3
        elif "embed" in name or "wte" in name or "wpe" in name:
            value = noise * (0.3 if "position" not in name else 0.1)
        else:
            value = noise * 1.2 / (p.shape[-1] ** 0.5)
        p.data.copy_(value.bfloat16().float())
    for name, buffer in model.named_buffers():
        if "correction" in name:
            buffer.copy_((torch.randn(buffer.shape, generator=generator) * 0.1).bfloat16().float())


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].float()


def expected(model, vocab, generator):
    out = {}
    for k, length in enumerate((1, 7, 45)):
        ids = torch.randint(3, vocab, (length,), generator=generator).tolist()
        out[f"ids_{k}"] = torch.tensor(ids)
        out[f"logits_{k}"] = logits_of(model, ids).contiguous()
        sequence = list(ids)
        for _ in range(12):
            sequence.append(int(logits_of(model, sequence)[-1].argmax()))
        out[f"greedy_{k}"] = torch.tensor(sequence[length:])
    return out


def make(folder, model_type, values, generator):
    config = make_config(model_type, values)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    randomise(model, generator)
    save_file(expected(model, config.vocab_size, generator), folder / "expected.safetensors")
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "about.json").write_text(json.dumps({"source": f"transformers {transformers.__version__} {model_type}"}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    for name, (model_type, values) in cases().items():
        if options.only and name not in options.only:
            continue
        folder = options.out / name
        folder.mkdir(parents=True, exist_ok=True)
        try:
            make(folder, model_type, values, torch.Generator().manual_seed(options.seed))
            print(name)
        except Exception as error:  # one family that this version of the library cannot make spoils no other
            print(f"{name}: {type(error).__name__}: {error}")
            (folder / "expected.safetensors").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
