"""Serving. ``lmdeploy.serve`` is a package and, as in older versions, something to call."""
from __future__ import annotations

import sys
import types
from typing import Any


class _CallablePackage(types.ModuleType):
    def __call__(self, model_path: str, model_name: str | None = None, backend: str = "turbomind",
                 backend_config: Any = None, chat_template_config: Any = None, server_name: str = "0.0.0.0",
                 server_port: int = 23333, log_level: str = "ERROR", api_keys: Any = None, ssl: bool = False,
                 **kwargs: Any) -> Any:
        """Starts an api_server as a process that ends with this one, waits until it answers, and returns an APIClient
        of it, with the first of ``api_keys``; ``client.process`` is the process.

        ``kwargs``: more flags of ``lmdeploy serve api_server``, with underscores. Raises InternalError when the server
        ends before it answers; it has written why.
        """
        from ._server import start_server
        return start_server(model_path, model_name, backend, backend_config, chat_template_config, server_name,
                            server_port, log_level, api_keys, ssl, kwargs)


sys.modules[__name__].__class__ = _CallablePackage
