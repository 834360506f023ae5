"""Between the package's documented classes and the native ones."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core
from ._engine_configs import PytorchEngineConfig, quant_policy_number

if TYPE_CHECKING:
    from ._engine_configs import EngineConfig
    from ._generation import GenerationConfig
    from .model import ChatTemplateConfig

_SEED_MASK = (1 << 64) - 1

# Fields that have the same name and meaning on both sides; None leaves the native default.
_PIPELINE_FIELDS = ("model_format", "dtype", "device_type", "tp", "num_threads", "rounded_activations",
                    "deterministic")
# The same; those that are not given may come from a converted workspace's config.
_ENGINE_FIELDS = ("session_len", "max_batch_size", "cache_max_entry_count", "enable_prefix_caching",
                  "max_prefill_token_num", "rope_scaling_factor", "use_logn_attn", "num_tokens_per_iter",
                  "max_prefill_iters", "cache_block_seq_len", "communicator")
_GENERATION_FIELDS = ("n", "do_sample", "top_p", "min_p", "temperature", "repetition_penalty", "presence_penalty",
                      "frequency_penalty", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens",
                      "include_stop_str_in_output", "logprobs", "repetition_ngram_size",
                      "repetition_ngram_threshold", "stop_words", "bad_words", "stop_token_ids", "bad_token_ids",
                      "min_new_tokens", "return_ppl")
_TEMPLATE_FIELDS = ("model_name", "system", "meta_instruction", "eosys", "user", "eoh", "assistant", "eoa", "tool",
                    "eotool", "separator", "capability", "stop_words")
_ROWS = {None: _core.OutputRows.NONE, "generation": _core.OutputRows.GENERATION, "all": _core.OutputRows.ALL}


def _copy_fields(source: Any, target: Any, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(source, name, None)
        if value is not None:
            setattr(target, name, value)


def native_pipeline_config(model_name: str, path: str, config: EngineConfig,
                           template: ChatTemplateConfig | None) -> _core.PipelineConfig:
    """The native form of an engine config whose fields have been checked."""
    native = _core.PipelineConfig()
    native.model_path = model_name
    native.local_path = path
    _copy_fields(config, native, _PIPELINE_FIELDS)
    _copy_fields(config, native, tuple(name for name in _ENGINE_FIELDS if hasattr(config, name) and config.given(name)))
    if config.given("quant_policy"):
        native.quant_policy = quant_policy_number(config.quant_policy)
    if isinstance(config, PytorchEngineConfig):
        native.max_prefill_token_num = config.max_prefill_token_num  # its default is not the native one
        if config.given("block_size"):
            native.cache_block_seq_len = config.block_size
        if config.num_gpu_blocks > 0:
            native.cache_max_entry_count = float(config.num_gpu_blocks)
    if config.hf_overrides:
        native.set_hf_overrides(config.hf_overrides)
    if template is not None:
        native.chat_template = native_template_config(template)
    return native


def native_generation_config(config: GenerationConfig) -> _core.GenerationConfig:
    """The native form; values are checked by its validate()."""
    native = _core.GenerationConfig()
    _copy_fields(config, native, _GENERATION_FIELDS)
    native.max_new_tokens = config.max_new_tokens
    native.top_k = 0 if config.top_k == -1 else config.top_k
    native.output_logits = _ROWS[config.output_logits]
    native.output_last_hidden_state = _ROWS[config.output_last_hidden_state]
    if config.logits_processors:
        native.set_logits_processors(config.logits_processors)
    if config.random_seed is not None:
        native.random_seed = config.random_seed & _SEED_MASK
    if config.response_format is not None:
        native.set_response_format(config.response_format)
    if config.logit_bias:
        native.logit_bias = list(config.logit_bias.items())
    return native


def native_template_config(config: ChatTemplateConfig) -> _core.ChatTemplateConfig:
    """Fields that are None stay unset: the named template's own."""
    native = _core.ChatTemplateConfig()
    _copy_fields(config, native, _TEMPLATE_FIELDS)
    return native
