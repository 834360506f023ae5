"""The page with a model in the same process."""
from __future__ import annotations

from typing import Any


def run_local(model_path: str, model_name: str | None = None, backend: str = "turbomind", backend_config: Any = None,
              chat_template_config: Any = None, server_name: str = "0.0.0.0", server_port: int = 6006, tp: int = 1,
              share: bool = False, **kwargs: Any) -> None:
    """Loads a model and serves the page until the program is ended.

    Args:
        model_path, model_name, backend, backend_config, chat_template_config: As ``lmdeploy.pipeline`` takes them.
        server_name: The address to listen on; ``huggingface-space`` leaves address and port to the platform.
        share: Whether gradio makes a public address for the page.
        kwargs: More for ``lmdeploy.pipeline``.
    """
    from .app import run_model
    options = {"model_name": model_name, "backend": backend, "backend_config": backend_config,
               "chat_template_config": chat_template_config, **kwargs}
    if tp != 1:
        options["tp"] = tp
    run_model(model_path, options, server_name, server_port, share)
