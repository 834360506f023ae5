"""From the arguments of pipeline() to a loaded model."""
from __future__ import annotations

import functools
import logging
import os
import sys
from typing import Any

from . import _core
from ._engine_configs import ENGINE_CONFIGS, EngineConfig, TurbomindEngineConfig, modern
from ._fields import check_fields
from ._hub import local_path
from ._inputs import check_text, show
from ._native import native_pipeline_config
from ._progress import Progress
from ._speculative import SpeculativeConfig
from .errors import ArgumentTypeError, InvalidArgumentError
from .model import MODELS, ChatTemplateConfig, build_template

_LEVEL_VARIABLE = "TM_LOG_LEVEL"
_level_is_ours = False  # whether _LEVEL_VARIABLE was set here, so that a later pipeline may change it
logger = logging.getLogger("lmdeploy")


@functools.cache  # once per process
def _configure_log() -> None:
    """The native log as the environment asks for it."""
    def variable(name: str) -> str:
        return os.environ.get(name, "")

    color = "auto"
    if variable("NO_COLOR") or variable("ANSI_COLORS_DISABLED"):
        color = "never"
    elif variable("FORCE_COLOR"):
        color = "always"
    with_pid = variable("LMDEPLOY_LOG_PID").lower() not in ("", "0", "false")
    _core.configure_log(variable("LMDEPLOY_LOG_FILE"), with_pid, color)


def set_log_level(level: str) -> None:
    """What both sides log. A TM_LOG_LEVEL of the environment wins over ``level`` on the native side."""
    global _level_is_ours
    if not isinstance(level, str):
        raise ArgumentTypeError(f"log_level is {show(level)}; expected CRITICAL, ERROR, WARNING, INFO or DEBUG")
    _configure_log()
    _core.set_log_level(check_text(level, "log_level"))
    logger.setLevel({"WARN": "WARNING", "FATAL": "CRITICAL"}.get(level.upper(), level.upper()))
    if _level_is_ours or _LEVEL_VARIABLE not in os.environ:
        os.environ[_LEVEL_VARIABLE] = level.upper()
        _level_is_ours = True
        return
    try:
        _core.set_log_level(check_text(os.environ[_LEVEL_VARIABLE], "its value"))
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"environment variable {_LEVEL_VARIABLE}: {error}") from None




def engine_config(backend_config: Any, loose: dict[str, Any]) -> EngineConfig:
    """The engine config, checked; ``loose`` are fields given as keywords, which win."""
    if backend_config is not None and not isinstance(backend_config, ENGINE_CONFIGS):
        raise ArgumentTypeError(f"backend_config is {type(backend_config).__name__}; expected TurbomindEngineConfig or "
                                "PytorchEngineConfig")
    config = modern(backend_config) if backend_config is not None else TurbomindEngineConfig()
    if loose:
        given = {name: getattr(config, name) for name in config._given}
        config = type(config)(**{**given, **loose})
    check_fields(config)
    return config


def python_template(config: ChatTemplateConfig | None, model_path: str) -> Any:
    """The template written in Python that is asked for or claims the model; None: native code renders."""
    if config is not None:
        return build_template(config) if config.model_name in MODELS.module_dict else None
    matching = MODELS.match(model_path)
    return matching() if matching is not None else None


def check_template_config(config: Any) -> ChatTemplateConfig | None:
    """None when nothing but the model's own template is wanted."""
    if config is None:
        return None
    if not isinstance(config, ChatTemplateConfig):
        raise ArgumentTypeError(f"chat_template_config is {type(config).__name__}; expected ChatTemplateConfig")
    return None if config.is_own_of_model() else config


def check_speculative_config(config: Any) -> SpeculativeConfig | None:
    """Its type; native code checks the values."""
    if config is not None and not isinstance(config, SpeculativeConfig):
        raise ArgumentTypeError(f"speculative_config is {type(config).__name__}; expected SpeculativeConfig")
    return config


def open_core(model_name: str, path: str, config: EngineConfig, template: ChatTemplateConfig | None,
              speculative: SpeculativeConfig | None) -> _core.Pipeline:
    """Loads the model of that name or path, whose files are at ``path``; on a terminal with a progress bar."""
    native = native_pipeline_config(model_name, path, config, template)
    if speculative is not None:
        is_path = speculative.method == "draft" and speculative.model  # native code refuses it otherwise
        draft = local_path(speculative.model, None, config.download_dir) if is_path else ""
        native.set_speculative(speculative.method, speculative.model, draft, speculative.num_speculative_tokens)
    if not sys.stderr.isatty():
        return _core.Pipeline.open(native)
    with Progress("Loading weights", "B") as progress:
        return _core.Pipeline.open(native, progress)
