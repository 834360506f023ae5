"""``Chatbot``, the client of a Triton server (LMDeploy up to 0.4). There is no such server here."""
from __future__ import annotations

from typing import Any

from ...errors import UnsupportedError


class Chatbot:
    """Raises UnsupportedError (a NotImplementedError)."""

    def __init__(self, tritonserver_addr: str, *args: Any, **kwargs: Any):
        raise UnsupportedError(f"Chatbot({tritonserver_addr!r}): servers of Triton are not supported; run `lmdeploy serve "
                               "api_server MODEL` and use lmdeploy.serve.openai.api_client.APIClient")
