"""What each config field does in this engine: one table per class; nothing is accepted and ignored in silence.

A field is *used*; or *refused* unless it has its default; or has *no effect* here, which a value that differs from the
default says once.
"""
from __future__ import annotations

from dataclasses import fields
from typing import Any

from ._config import Config, default_of
from ._engine_configs import PytorchEngineConfig, TurbomindEngineConfig
from ._generation import EngineGenerationConfig, GenerationConfig
from ._inputs import show
from ._warn import warn_once
from .errors import UnsupportedError

USED = "used"
REFUSED = "refused"
NO_EFFECT = "no effect"

_ONE_DEVICE = (REFUSED, "GPUs share a model by tp alone")
_TEXT_ONLY = (NO_EFFECT, "models take text only")
_NOT_YET = (REFUSED, "not supported yet")
_ONE_PROCESS = (NO_EFFECT, "the engine runs in this process")
_CUDA_ONLY = (NO_EFFECT, "it steers a CUDA back end, which this version does not have")
_ALWAYS = (NO_EFFECT, "it is always so here")

Rule = tuple[str, str]


def _rules(used: str, others: dict[Rule, str]) -> dict[str, Rule]:
    table = {name: (USED, "") for name in used.split()}
    for rule, names in others.items():
        table.update(dict.fromkeys(names.split(), rule))
    return table


TURBOMIND = _rules(
    "dtype session_len max_batch_size cache_max_entry_count cache_block_seq_len enable_prefix_caching quant_policy "
    "rope_scaling_factor use_logn_attn max_prefill_token_num num_tokens_per_iter max_prefill_iters hf_overrides "
    "device_type num_threads tp communicator deterministic rounded_activations model_format download_dir revision",
    {
        _ONE_DEVICE: "dp cp ep device_num attn_tp_size attn_cp_size attn_dp_size mlp_tp_size mlp_dp_size "
                     "outer_dp_size nnodes node_rank dist_init_addr devices",
        _NOT_YET: "empty_init",
        _TEXT_ONLY: "language_model_only",
        (NO_EFFECT, "KV memory is reserved at once and its pages are taken when first used"): "cache_chunk_size",
        (NO_EFFECT, "it belongs to asynchronous CUDA stepping"): "async_",
        (NO_EFFECT, "counters cost nothing and are always kept"): "enable_metrics",
        (NO_EFFECT, "it steers the cache of recurrent models, which are not supported yet"):
            "cache_checkpoint_interval cache_prompt cache_prompt_boundary_skip cache_generation",
        (NO_EFFECT, "use chat_template_config to choose a chat template"): "model_name",
    })

PYTORCH = _rules(
    "dtype session_len max_batch_size cache_max_entry_count block_size num_gpu_blocks max_prefill_token_num "
    "enable_prefix_caching device_type quant_policy hf_overrides num_threads model_format logprobs_mode download_dir "
    "rounded_activations deterministic tp revision",
    {
        _ONE_DEVICE: "dp dp_rank ep attn_tp_size mlp_tp_size moe_tp_size",
        _NOT_YET: "adapters empty_init enable_microbatch enable_eplb enable_return_routed_experts dllm_block_length "
                  "dllm_unmasking_strategy dllm_denoising_steps dllm_confidence_threshold role",
        (REFUSED, "checkpoint code and PyTorch modules are never run here"): "custom_module_map",
        _TEXT_ONLY: "disable_vision_encoder language_model_only",
        _ONE_PROCESS: "distributed_executor_backend enable_mp_engine mp_engine_backend enable_transfer_obj_ref",
        _CUDA_ONLY: "eager_mode cudagraph_capture_batch_sizes kernel_block_size",
        _ALWAYS: "thread_safe",
        (NO_EFFECT, "prompts and answers share steps, so there is no interval to choose"): "prefill_interval",
        (NO_EFFECT, "evicted sequences are recomputed, not copied to other memory"): "num_cpu_blocks eviction_type",
        (NO_EFFECT, "counters cost nothing and are always kept"): "enable_metrics",
        (NO_EFFECT, "there is no prefill/decode split yet"): "migration_backend",
        (NO_EFFECT, "it steers the cache of recurrent models, which are not supported yet"):
            "prefix_cache_state_budget prefix_cache_decode_state_interval",
        (NO_EFFECT, "use chat_template_config to choose a chat template"): "model_name",
    })

GENERATION = _rules(
    "n max_new_tokens do_sample top_p top_k min_p temperature repetition_penalty ignore_eos random_seed stop_words "
    "bad_words stop_token_ids bad_token_ids min_new_tokens skip_special_tokens logprobs output_logits "
    "include_stop_str_in_output repetition_ngram_size repetition_ngram_threshold presence_penalty frequency_penalty "
    "logit_bias response_format logits_processors output_last_hidden_state return_ppl",
    {
        (REFUSED, "there is no prefill/decode split yet"): "with_cache preserve_cache migration_request",
        _NOT_YET: "return_routed_experts",
        (NO_EFFECT, "no space is ever put between special tokens"): "spaces_between_special_tokens",
    })

ENGINE_GENERATION = _rules(
    "n max_new_tokens top_p top_k temperature repetition_penalty ignore_eos random_seed stop_words bad_words "
    "min_new_tokens skip_special_tokens logprobs", {})

TABLES: dict[type[Config], dict[str, Rule]] = {
    TurbomindEngineConfig: TURBOMIND,
    PytorchEngineConfig: PYTORCH,
    GenerationConfig: GENERATION,
    EngineGenerationConfig: ENGINE_GENERATION,
}

#: Values beside the default that mean the same as leaving the field out.
_HARMLESS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("device_num", "attn_tp_size", "attn_cp_size", "attn_dp_size", "mlp_tp_size", "mlp_dp_size",
                     "outer_dp_size", "moe_tp_size"), (1,)),
    "async_": (True,),
    "distributed_executor_backend": ("uni",),
    "adapters": ({},),
}


def check_fields(config: Config) -> None:
    """Raises UnsupportedError for the first field that is set and cannot be honoured; warns of those without effect."""
    table = TABLES[type(config)]
    for field in fields(config):  # type: ignore[arg-type]
        rule, why = table[field.name]
        value = getattr(config, field.name)
        if rule == USED or value == default_of(field) or value in _HARMLESS.get(field.name, ()):
            continue
        text = f"{type(config).__name__}.{field.name}={show(value)}"
        if rule == REFUSED:
            raise UnsupportedError(f"{text}: {why}; leave it at {default_of(field)!r}")
        warn_once(f"{text} has no effect: {why}")
    _check_values(config)


def _check_values(config: Config) -> None:
    """Used fields of which only some values are supported."""
    logprobs_mode = getattr(config, "logprobs_mode", None)
    if logprobs_mode not in (None, "raw_logprobs"):
        raise UnsupportedError(f"{type(config).__name__}.logprobs_mode={logprobs_mode!r} is not supported; log "
                               "probabilities are always those of the full distribution ('raw_logprobs')")
