"""pipeline() in all the forms that LMDeploy has had."""
from __future__ import annotations

from typing import Any

from . import _core
from ._engine_configs import ENGINE_CONFIGS
from ._pipeline import Pipeline
from ._warn import warn_once
from .errors import UnsupportedError
from .model import MODELS, ChatTemplateConfig

_BACKENDS = ("turbomind", "pytorch")


def _older_positions(args: dict[str, Any]) -> dict[str, Any]:
    """Undoes the shift of calls written for the older order (path, model_name, [backend,] backend_config, template)."""
    second, third, fourth, fifth = (args[name] for name in ("backend_config", "chat_template_config", "log_level",
                                                            "max_log_len"))
    names_model = isinstance(second, str)
    if isinstance(third, str) and third in _BACKENDS:
        return {**args, "model_name": second, "backend": third, "backend_config": _unless_default(fourth),
                "chat_template_config": fifth, "log_level": "WARNING", "max_log_len": None}
    if not names_model and not isinstance(third, ENGINE_CONFIGS):
        return args
    return {**args, "model_name": second, "backend_config": third, "chat_template_config": _unless_default(fourth),
            "log_level": fifth or "WARNING", "max_log_len": None}


def _unless_default(value: Any) -> Any:
    return None if isinstance(value, str) else value


def _template_by_name(model_name: str | None, config: ChatTemplateConfig | None) -> ChatTemplateConfig | None:
    """``model_name`` chose the chat template in older versions."""
    if model_name is None or config is not None:
        return config
    if model_name in MODELS:
        warn_once("pipeline(model_name=...) is deprecated; use chat_template_config=ChatTemplateConfig(model_name=...)",
                  DeprecationWarning)
        return ChatTemplateConfig(model_name=model_name)
    warn_once(f"model_name={model_name!r} has no effect: it is no chat template (see `lmdeploy list`), and nothing is "
              "served here")
    return None


def _refuse_old(args: dict[str, Any]) -> None:
    """Takes keywords of older versions out of ``args``."""
    if args.pop("vision_config", None) is not None:
        raise UnsupportedError("vision_config: no model takes images yet; leave it out")
    if args.pop("instance_num", None) is not None:
        warn_once("pipeline(instance_num=...) has no effect; set max_batch_size in backend_config")
    backend = args.pop("backend", None)
    if backend not in (None, *_BACKENDS):
        raise UnsupportedError(f"backend {backend!r} is not one of {', '.join(_BACKENDS)}")
    if "tp" in args:
        warn_once("pipeline(tp=...) is deprecated; set tp in backend_config", DeprecationWarning)


def pipeline(model_path: str, backend_config: Any = None, chat_template_config: ChatTemplateConfig | None = None,
             log_level: str = "WARNING", max_log_len: int | None = None, speculative_config: Any = None,
             trust_remote_code: bool = False, allowed_media_domains: list[str] | None = None,
             **kwargs: Any) -> Pipeline:
    """Loads a model and returns a Pipeline, which is called with prompts.

        >>> with pipeline("path/to/model") as pipe:
        ...     print(pipe("Hi, who are you?").text)

    Args:
        model_path: A folder with config.json and safetensors files, a folder with a .gguf file, or a .gguf file; or the
            name of a model on a hub, ``org/name`` or ``org/name/file.gguf``, which is downloaded unless it is in the
            cache (docs/hub.md). ``revision`` and ``download_dir`` are fields of the engine config.
        backend_config: TurbomindEngineConfig or PytorchEngineConfig; both drive the same engine.
        chat_template_config: The chat template; None: the one that came with the model.
        log_level: CRITICAL, ERROR, WARNING, INFO or DEBUG; also sets TM_LOG_LEVEL if that is unset.
        max_log_len: Most characters of a prompt in the log.
        speculative_config: SpeculativeConfig; None: one token a step.
        trust_remote_code: No effect: code of a checkpoint is never run.
        allowed_media_domains: No effect: models take text only.
        kwargs: Fields of the engine config; also ``model_name`` (name of a chat template), ``backend``, ``tp`` and
            ``instance_num`` of older versions. Their order of positional arguments is understood too.

    Raises:
        NotFoundError: (a FileNotFoundError) no such path or model, or no weights in it.
        IoError: (an OSError) the hub cannot be reached or refuses access.
        UnsupportedError: (a NotImplementedError) an architecture, file format or option that this version lacks.
        InvalidDataError: (a ValueError) a damaged file.
        ArgumentTypeError: (a TypeError and ValueError) a wrong type or an unknown keyword.
    """
    named = {"backend_config": backend_config, "chat_template_config": chat_template_config, "log_level": log_level,
             "max_log_len": max_log_len}
    args = {**_older_positions(named), "speculative_config": speculative_config,
            "trust_remote_code": trust_remote_code, "allowed_media_domains": allowed_media_domains, **kwargs}
    _refuse_old(args)
    args["chat_template_config"] = _template_by_name(args.pop("model_name", None), args["chat_template_config"])
    return Pipeline(model_path, **args)


def client(api_server_url: str = "http://0.0.0.0:23333", api_key: str | None = None, **kwargs: Any) -> Any:
    """A client of the api_server at that address; see APIClient."""
    from .serve.openai.api_client import APIClient
    return APIClient(api_server_url, api_key, **kwargs)


def supported_architectures() -> list[str]:
    """Names of the model architectures that can be loaded."""
    return _core.supported_architectures()
