"""Engine configs: TurbomindEngineConfig, PytorchEngineConfig and the two of the time before 0.2.

Both kinds drive the same engine; they differ in names and defaults. What each field does here: ``lmdeploy._fields``.
"""
from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from ._config import Config
from .errors import ConfigValueError

_DTYPES = ("auto", "float16", "bfloat16", "float32")


class QuantPolicy(enum.IntEnum):
    """Number kinds of the KV cache."""

    NONE = 0
    INT4 = 4
    INT8 = 8
    FP8 = 16
    FP8_E5M2 = 17
    TURBO_QUANT = 42


_QUANT_NAMES = {"none": 0, "int4": 4, "int8": 8, "fp8": 16, "fp8_e4m3": 16, "fp8_e5m2": 17, "turbo_quant": 42}


def quant_policy_number(value: int | str) -> int:
    """``"int8"`` or 8 -> 8. Raises ConfigValueError for an unknown kind."""
    number = _QUANT_NAMES.get(value.lower(), -1) if isinstance(value, str) else int(value)
    if number not in _QUANT_NAMES.values():
        raise ConfigValueError(f"invalid quant_policy: {value!r}; expected 0 (off), 4 (int4), 8 (int8) or one of "
                               f"{', '.join(_QUANT_NAMES)}")
    return number


def _require(holds: bool, field: str, value: Any, expected: str) -> None:
    if not holds:
        raise ConfigValueError(f"invalid {field}: {value!r}; expected {expected}")


def _require_positive(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        _require(value is None or value >= 1, name, value, "at least 1")


@dataclass
class TurbomindEngineConfig(Config):
    """How a model is loaded and run.

    Args:
        dtype: ``auto``, ``float16``, ``bfloat16`` or ``float32``: number kind of the KV cache on the CPU.
        model_format: What the checkpoint must be: ``hf``, ``llama``, ``gguf``, ``awq``, ``gptq``,
            ``compressed-tensors``, ``fp8``, ``mxfp4`` or ``w8a8``; None: whatever it is.
        session_len: Most tokens of prompt and answer together; None: the model's own.
        max_batch_size: Most prompts that run at once; None: by device. More than that wait.
        cache_max_entry_count: In (0, 1): share of the free memory for keys and values; a whole number, 1 or more: a
            number of blocks. Left out: on the CPU what ``max_batch_size`` sessions need, at most a quarter of the free
            memory; giving the 0.8 that the field shows then is something else, though ``==`` sees no difference.
        cache_block_seq_len: Tokens per KV block.
        enable_prefix_caching: Reuse the keys and values of equal prompt beginnings.
        quant_policy: Number kind of the KV cache: 0 as ``dtype``, 8 or ``"int8"``, 4 or ``"int4"``.
        rope_scaling_factor: 1 or more: dynamic NTK scaling with this factor; 0: as the checkpoint says.
        use_logn_attn: Scale queries beyond the trained length by the logarithm of their position.
        max_prefill_token_num: Prompt tokens per step.
        num_tokens_per_iter, max_prefill_iters: Split of long prompts over steps; 0: ``max_prefill_token_num``.
        hf_overrides: Values that replace those of the checkpoint's config.json.
        device_type: ``auto``, ``cpu`` or ``cuda``.
        num_threads: CPU threads; 0: all CPUs this process may use.
        deterministic: The same tokens and log probabilities whatever else runs, to the last bit. On the CPU it is
            always so, at no cost; on a GPU products are slower.
        rounded_activations: On the CPU, round activations for products with quantised weights to int8, a scale for
            32 of them, and with bf16 weights to bf16 where the processor multiplies that. None: for models mostly
            of integers (GGUF's quantised kinds, AWQ, GPTQ, int8; not fp8) and for others of 10^9 weights or more,
            unless ``dtype`` is ``float32``.

    The other fields are LMDeploy's; opening a pipeline refuses those it cannot honour, by name.

    Raises:
        ArgumentTypeError: (a TypeError and ValueError) a wrong type or an unknown name.
        ConfigValueError: (an AssertionError and ValueError) a value outside its range.
    """

    dtype: str = "auto"
    model_format: str | None = None
    tp: int = 1
    dp: int = 1
    cp: int = 1
    device_num: int | None = None
    attn_tp_size: int | None = None
    attn_cp_size: int | None = None
    attn_dp_size: int | None = None
    mlp_tp_size: int | None = None
    mlp_dp_size: int | None = None
    outer_dp_size: int | None = None
    nnodes: int = 1
    node_rank: int = 0
    dist_init_addr: str | None = None
    devices: list[int] | None = None
    session_len: int | None = None
    max_batch_size: int | None = None
    cache_max_entry_count: float = 0.8
    cache_chunk_size: int = -1
    cache_block_seq_len: int = 64
    enable_prefix_caching: bool = False
    quant_policy: int | str = 0
    rope_scaling_factor: float = 0.0
    use_logn_attn: bool = False
    download_dir: str | None = None
    revision: str | None = None
    max_prefill_token_num: int = 8192
    num_tokens_per_iter: int = 0
    max_prefill_iters: int = 1
    async_: int | bool = 1
    empty_init: bool = False
    communicator: str = "nccl"
    hf_overrides: dict[str, Any] | None = None
    enable_metrics: bool = True
    ep: int = 1
    cache_checkpoint_interval: int = 4096
    cache_prompt: str = "auto"
    cache_prompt_boundary_skip: int = 1
    cache_generation: str = "auto"
    language_model_only: bool = False
    model_name: str | None = None
    device_type: str = "auto"
    num_threads: int = 0
    rounded_activations: bool | None = None
    deterministic: bool = False

    def _validate(self) -> None:
        _require(self.dtype in _DTYPES, "dtype", self.dtype, ", ".join(_DTYPES))
        _require_positive(self, "tp", "dp", "cp", "ep", "session_len", "max_batch_size", "cache_block_seq_len",
                          "max_prefill_token_num", "max_prefill_iters")
        count = self.cache_max_entry_count
        _require(0 < count < 1 or (count >= 1 and count % 1 == 0), "cache_max_entry_count", count,
                 "a share of memory in (0, 1) or a whole number of blocks, 1 or more")
        quant_policy_number(self.quant_policy)
        _require(self.rope_scaling_factor >= 0, "rope_scaling_factor", self.rope_scaling_factor, "0 or more")
        _require(self.num_tokens_per_iter >= 0, "num_tokens_per_iter", self.num_tokens_per_iter, "0 or more")
        _require(self.async_ in (0, 1), "async_", self.async_, "0 or 1")


@dataclass
class PytorchEngineConfig(Config):
    """The same engine under the names and defaults of LMDeploy's PyTorch back end; see TurbomindEngineConfig.

    Args:
        block_size: Tokens per KV block: a power of two, at least 16.
        num_gpu_blocks: Number of KV blocks; 0: from ``cache_max_entry_count``.
        cache_max_entry_count: In (0, 1): share of the free memory for keys and values.

    Raises:
        ConfigValueError: (an AssertionError and ValueError) ``invalid tp``, ``invalid quant_policy``, ...
        ArgumentTypeError: (a TypeError and ValueError) a wrong type or an unknown name.
    """

    dtype: str = "auto"
    tp: int = 1
    dp: int = 1
    dp_rank: int = 0
    ep: int = 1
    session_len: int | None = None
    max_batch_size: int | None = None
    attn_tp_size: int | None = None
    mlp_tp_size: int | None = None
    moe_tp_size: int | None = None
    cache_max_entry_count: float = 0.8
    prefill_interval: int = 16
    block_size: int = 64
    num_cpu_blocks: int = 0
    num_gpu_blocks: int = 0
    adapters: dict[str, str] | None = None
    max_prefill_token_num: int = 4096
    thread_safe: bool = False
    enable_prefix_caching: bool = False
    device_type: str = "auto"
    eager_mode: bool = False
    custom_module_map: Any = None
    download_dir: str | None = None
    revision: str | None = None
    quant_policy: int | str = 0
    distributed_executor_backend: str | None = None
    empty_init: bool = False
    enable_microbatch: bool = False
    enable_eplb: bool = False
    enable_mp_engine: bool = False
    mp_engine_backend: str = "mp"
    model_format: str | None = None
    enable_metrics: bool = True
    hf_overrides: dict[str, Any] | None = None
    disable_vision_encoder: bool = False
    language_model_only: bool = False
    logprobs_mode: str | None = None
    enable_return_routed_experts: bool = False
    enable_transfer_obj_ref: bool = False
    dllm_block_length: int | None = None
    dllm_unmasking_strategy: str = "low_confidence_dynamic"
    dllm_denoising_steps: int | None = None
    dllm_confidence_threshold: float = 0.85
    role: str = "Hybrid"
    migration_backend: str = "DLSlime"
    kernel_block_size: int = -1
    cudagraph_capture_batch_sizes: list[int] | None = None
    prefix_cache_state_budget: int = 0
    prefix_cache_decode_state_interval: int = 0
    model_name: str = ""
    eviction_type: str = "recompute"
    num_threads: int = 0
    rounded_activations: bool | None = None
    deterministic: bool = False

    def _validate(self) -> None:
        _require(self.dtype in _DTYPES, "dtype", self.dtype, ", ".join(_DTYPES))
        _require_positive(self, "tp", "dp", "ep", "session_len", "max_batch_size", "max_prefill_token_num")
        _require(0 < self.cache_max_entry_count < 1, "cache_max_entry_count", self.cache_max_entry_count,
                 "a share of memory in (0, 1)")
        for name in ("num_cpu_blocks", "num_gpu_blocks"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "0 (automatic) or more")
        _require(self.block_size >= 16 and self.block_size & (self.block_size - 1) == 0, "block_size",
                 self.block_size, "a power of two, at least 16")
        quant_policy_number(self.quant_policy)
        devices = ("auto", "cpu", "cuda", "ascend", "maca", "camb")
        _require(self.device_type in devices, "device_type", self.device_type, ", ".join(devices))
        _require(self.eviction_type in ("recompute", "copy"), "eviction_type", self.eviction_type,
                 "recompute or copy")


@dataclass
class TurbomindLegacyEngineConfig(Config):
    """``lmdeploy.turbomind.EngineConfig`` of the time before 0.2; ``quant_policy`` 4 meant an int8 KV cache."""

    model_name: str | None = None
    model_format: str | None = None
    group_size: int = 128
    tp: int = 1
    session_len: int | None = None
    max_batch_size: int = 128
    max_context_token_num: int = 1
    cache_max_entry_count: float = 0.5
    cache_block_seq_len: int = 128
    cache_chunk_size: int = -1
    num_tokens_per_iter: int = 0
    max_prefill_iters: int = 1
    use_context_fmha: int = 1
    quant_policy: int = 0
    rope_scaling_factor: float = 0.0
    use_dynamic_ntk: bool = False
    use_logn_attn: bool = False
    kv_bits: int = 8


@dataclass
class PytorchLegacyEngineConfig(Config):
    """``lmdeploy.pytorch.EngineConfig`` of the time before 0.2."""

    model_name: str = ""
    tp: int = 1
    session_len: int | None = None
    max_batch_size: int = 128
    eviction_type: str = "recompute"
    prefill_interval: int = 16
    block_size: int = 64
    num_cpu_blocks: int = 0
    num_gpu_blocks: int = 0


EngineConfig = TurbomindEngineConfig | PytorchEngineConfig
ENGINE_CONFIGS = (TurbomindEngineConfig, PytorchEngineConfig, TurbomindLegacyEngineConfig, PytorchLegacyEngineConfig)


def _carry_over(old: Any, new_class: type, renamed: dict[str, Any], dropped: tuple[str, ...]) -> Any:
    """``old``'s given fields as a config of ``new_class``."""
    values = {name: getattr(old, name) for name in old._given if name not in dropped}
    return new_class(**{**values, **renamed})


def modern(config: Any) -> EngineConfig:
    """Today's form of any engine config."""
    if isinstance(config, PytorchLegacyEngineConfig):
        return _carry_over(config, PytorchEngineConfig, {}, ())
    if not isinstance(config, TurbomindLegacyEngineConfig):
        return config
    renamed: dict[str, Any] = {"cache_block_seq_len": config.cache_block_seq_len}
    if config.quant_policy == 4:
        renamed["quant_policy"] = 8
    if config.use_dynamic_ntk and config.rope_scaling_factor == 0:
        renamed["rope_scaling_factor"] = 1.0
    if config.max_context_token_num > 1:
        renamed["max_prefill_token_num"] = config.max_context_token_num
    dropped = ("group_size", "use_context_fmha", "use_dynamic_ntk", "kv_bits", "max_context_token_num")
    return _carry_over(config, TurbomindEngineConfig, renamed, dropped)
