"""From the arguments of a call to the configs of its prompts."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core
from ._fields import check_fields
from ._generation import EngineGenerationConfig, GenerationConfig
from ._inputs import show
from ._native import native_generation_config
from ._warn import warn_once
from .errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError

_SAMPLING = ("top_p", "top_k", "min_p", "temperature")
_LOOSE_SAMPLING = {"top_k": 40, "top_p": 0.8, "temperature": 0.8}  # the defaults that went with loose arguments


def _from_loose(loose: dict[str, Any]) -> GenerationConfig:
    """The config of arguments given on the call; naming one of top_k, top_p and temperature means sampling."""
    values = {"max_new_tokens" if name == "request_output_len" else name: value for name, value in loose.items()}
    if values.keys() & _LOOSE_SAMPLING.keys():
        values = {**_LOOSE_SAMPLING, **values, "do_sample": True}
    return GenerationConfig(**values)


def _warn_if_greedy(config: GenerationConfig) -> None:
    given = [name for name in _SAMPLING if config.given(name)]
    if config.do_sample or not given or config.temperature == 0 or config.top_k == 1:
        return
    warn_once(f"GenerationConfig: {', '.join(given)} given without do_sample=True has no effect: the answer is greedy")


def _warn_if_cut_short(config: GenerationConfig) -> None:
    least, most = config.min_new_tokens or 0, config.max_new_tokens
    if most is not None and least > most:
        warn_once(f"GenerationConfig: min_new_tokens is {least}, but max_new_tokens={most} ends the answer before")


def _one_config(config: Any) -> GenerationConfig:
    if isinstance(config, EngineGenerationConfig):
        config = config.to_generation_config()
    if not isinstance(config, GenerationConfig):
        raise ArgumentTypeError(f"gen_config is {type(config).__name__}; expected GenerationConfig")
    config.check_again()
    check_fields(config)
    _warn_if_greedy(config)
    _warn_if_cut_short(config)
    return config


def resolve_configs(gen_config: Any, num_prompts: int, loose: dict[str, Any] | None = None) -> list[GenerationConfig]:
    """One config per prompt. ``loose``: arguments of the call that are None when not given.

    Raises:
        InvalidArgumentError: the length of a list of configs is not ``num_prompts``.
    """
    given = {name: value for name, value in (loose or {}).items() if value is not None}
    if gen_config is None:
        config = _from_loose(given)
        check_fields(config)
        return [config] * num_prompts
    if given:
        warn_once(f"{', '.join(given)} on the call has no effect beside gen_config; set the fields of gen_config")
    if not isinstance(gen_config, (list, tuple)):
        return [_one_config(gen_config)] * num_prompts
    if len(gen_config) != num_prompts:
        raise InvalidArgumentError(f"gen_config has {len(gen_config)} entries for {num_prompts} prompts; expected one "
                                   "config, or one per prompt")
    return [_one_config(config) for config in gen_config]


def native_configs(configs: list[GenerationConfig], stop_words: Sequence[str]) -> list[_core.GenerationConfig]:
    """``stop_words`` are added to each."""
    natives = []
    for config in configs:
        native = native_generation_config(config)
        native.stop_words = [*native.stop_words, *stop_words]
        natives.append(native)
    return natives


def refuse_adapter(adapter_name: str | None) -> None:
    """LoRA adapters are not there yet."""
    if adapter_name is not None:
        raise UnsupportedError(f"adapter_name={show(adapter_name)}: LoRA adapters are not supported yet; leave it out")
