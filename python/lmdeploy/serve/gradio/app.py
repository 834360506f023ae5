"""``lmdeploy serve gradio``, also as ``python3 -m lmdeploy.serve.gradio.app``."""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from ...api import pipeline
from ...errors import UnsupportedError
from ...messages import TurbomindEngineConfig
from ...model import ChatTemplateConfig
from .backends import ModelBackend, ServerBackend, is_server
from .turbomind_coupled import run_local

__all__ = ["run", "run_local", "run_model", "run_server", "main"]

_CAPABILITIES = ("chat", "completion", "infilling", "python")


def _page() -> Any:
    try:
        from . import page
    except ImportError as error:
        if error.name is None or error.name.startswith("lmdeploy"):
            raise
        raise UnsupportedError(f"lmdeploy serve gradio needs the package gradio ({error}): pip install "
                               "'lmdeploy[gradio]'; or use the page at /ui of every api_server") from error
    return page


def run_model(model_path: str, options: dict[str, Any], server_name: str, server_port: int, share: bool = False,
              instruction: str = "", capability: str = "chat") -> None:
    """The page with a model in this process."""
    page = _page()  # before the model: a missing package is said at once
    with pipeline(model_path, **options) as pipe:
        backend = ModelBackend(pipe, capability)
        _announce(server_name, server_port)
        page.launch(backend, server_name, server_port, share, instruction)


def run_server(url: str, server_name: str = "0.0.0.0", server_port: int = 6006, share: bool = False,
               api_key: str | None = None, model_name: str | None = None, instruction: str = "") -> None:
    """The page in front of an api_server."""
    page = _page()
    backend = ServerBackend(url, api_key, model_name)
    _announce(server_name, server_port)
    page.launch(backend, server_name, server_port, share, instruction)


def run(model_path_or_server: str, server_name: str = "0.0.0.0", server_port: int = 6006, share: bool = False,
        **options: Any) -> None:
    """Either of them, as ``model_path_or_server`` says."""
    if is_server(model_path_or_server):
        run_server(model_path_or_server, server_name, server_port, share, **options)
    else:
        run_local(model_path_or_server, server_name=server_name, server_port=server_port, share=share, **options)


def _announce(server_name: str, server_port: int) -> None:
    if server_name != "huggingface-space":
        print(f"server is gonna mount on: http://{server_name}:{server_port}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lmdeploy serve gradio", description="A web page to chat with a model.")
    add = parser.add_argument
    add("model_path_or_server", metavar="PATH_OR_SERVER",
        help="model folder, .gguf file or model of the hub; or the address of an api_server: http://host:port")
    add("--server-name", default="0.0.0.0", help="address to listen on (default: %(default)s)")
    add("--server-port", type=int, default=6006, help="port (default: %(default)s)")
    add("--share", action="store_true", help="let gradio make a public address")
    add("--meta-instruction", default="", help="what the instruction box holds at first")
    add("--cap", choices=_CAPABILITIES, default="chat",
        help="a conversation, or raw text for the model (default: %(default)s)")
    add("--api-key", help="for an api_server that asks for one")
    add("--model-name", help="which of a server's models; with a model in this process its chat template")
    engine = parser.add_argument_group("engine, with a model in this process")
    engine.add_argument("--backend", choices=["turbomind", "pytorch"], default="turbomind")
    engine.add_argument("--chat-template", help="name of a template, a JSON file, or JSON text")
    for name, kind in (("tp", int), ("session_len", int), ("max_batch_size", int), ("cache_max_entry_count", float),
                       ("cache_block_seq_len", int), ("model_format", str), ("quant_policy", int),
                       ("rope_scaling_factor", float)):
        engine.add_argument("--" + name.replace("_", "-"), type=kind)
    engine.add_argument("--enable-prefix-caching", action="store_true", default=None)
    return parser


_ENGINE_FLAGS = ("tp", "session_len", "max_batch_size", "cache_max_entry_count", "cache_block_seq_len",
                 "model_format", "quant_policy", "rope_scaling_factor", "enable_prefix_caching")


def _template(arguments: argparse.Namespace) -> ChatTemplateConfig | None:
    template = _chosen_template(arguments)
    if arguments.cap == "infilling":  # a way in which the templates of code models render
        template = template or ChatTemplateConfig("codellama")
        template.capability = arguments.cap
    return template


def _chosen_template(arguments: argparse.Namespace) -> ChatTemplateConfig | None:
    given = arguments.chat_template
    if given is None:
        return ChatTemplateConfig(arguments.model_name) if arguments.model_name else None
    if given.lstrip().startswith("{") or given.endswith(".json"):
        return ChatTemplateConfig.from_json(given)
    return ChatTemplateConfig(given)


def _run_arguments(arguments: argparse.Namespace) -> None:
    shared = {"server_name": arguments.server_name, "server_port": arguments.server_port, "share": arguments.share,
              "instruction": arguments.meta_instruction}
    engine = {name: getattr(arguments, name) for name in _ENGINE_FLAGS if getattr(arguments, name) is not None}
    if is_server(arguments.model_path_or_server):
        if engine or arguments.chat_template or arguments.cap != "chat":
            given = [*engine, *(["chat_template"] if arguments.chat_template else []),
                     *(["cap"] if arguments.cap != "chat" else [])]
            raise UnsupportedError("--" + given[0].replace("_", "-") + " is for a model in this process; the server at "
                                   f"{arguments.model_path_or_server} has its own")
        run_server(arguments.model_path_or_server, api_key=arguments.api_key, model_name=arguments.model_name, **shared)
        return
    options = {"backend_config": TurbomindEngineConfig(**engine), "chat_template_config": _template(arguments)}
    run_model(arguments.model_path_or_server, options, capability=arguments.cap, **shared)


def _hyphens(argument: str) -> str:
    """Flags may be written with underscores."""
    name, equals, value = argument.partition("=")
    return (name.replace("_", "-") if name.startswith("--") else name) + equals + value


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args([_hyphens(argument) for argument in (sys.argv[1:] if argv is None else argv)])
    try:
        _run_arguments(arguments)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        print(f"lmdeploy: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
