"""Serving. ``lmdeploy.serve`` is a package and, as in older versions, something to call."""
from __future__ import annotations

import sys
import types
from typing import Any

from ..errors import UnsupportedError


class _CallablePackage(types.ModuleType):
    def __call__(self, model_path: str, model_name: str | None = None, backend: str = "turbomind",
                 backend_config: Any = None, chat_template_config: Any = None, server_name: str = "0.0.0.0",
                 server_port: int = 23333, log_level: str = "ERROR", api_keys: Any = None, ssl: bool = False,
                 **kwargs: Any) -> Any:
        """Raises UnsupportedError (a NotImplementedError): a server is a program of its own."""
        raise UnsupportedError("lmdeploy.serve() is not there: start `lmdeploy serve api_server` as a program of its "
                               "own once this version has it, or use lmdeploy.pipeline() for answers in this process")


sys.modules[__name__].__class__ = _CallablePackage
