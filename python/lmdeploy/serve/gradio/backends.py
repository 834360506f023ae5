"""Where answers come from: a model in this process, or a server.

A backend has a ``name`` for the page and ``stream(messages, settings)``, an iterator over pieces of text; closing that
iterator ends the answer.
"""
from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..._generation import GenerationConfig
from ...errors import InvalidArgumentError

if TYPE_CHECKING:
    import httpx

    from ..._pipeline import Pipeline

Messages = list[dict[str, str]]


@dataclass
class Settings:
    """What the sliders say."""
    max_new_tokens: int = 512
    top_p: float = 0.8
    temperature: float = 0.7


class ModelBackend:
    """Coupled: a pipeline of this process. With a capability other than ``chat`` each message stands for itself."""

    def __init__(self, pipe: Pipeline, capability: str = "chat"):
        self._pipe = pipe
        self._is_conversation = capability == "chat"
        self._uses_template = capability in ("chat", "infilling")
        self.name = pipe.model_name

    def stream(self, messages: Messages, settings: Settings) -> Generator[str, None, None]:
        config = GenerationConfig(max_new_tokens=settings.max_new_tokens, top_p=settings.top_p,
                                  temperature=settings.temperature, do_sample=True)
        prompt: Any = messages if self._is_conversation else messages[-1]["content"]
        pieces = self._pipe.stream_infer(prompt, config, do_preprocess=self._uses_template)
        for piece in pieces:
            if piece.error_message is not None:
                raise RuntimeError(piece.error_message)
            yield piece.text


class ServerBackend:
    """Decoupled: the chat route of an OpenAI-compatible server."""

    def __init__(self, url: str, api_key: str | None = None, model_name: str | None = None):
        self._url = server_url(url)
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._model = model_name or self._first_model()
        self.name = f"{self._model} at {self._url}"

    def _client(self) -> httpx.Client:
        import httpx  # comes with gradio
        return httpx.Client(base_url=self._url, headers=self._headers, timeout=httpx.Timeout(10, read=None))

    def _first_model(self) -> str:
        import httpx
        try:
            with self._client() as client:
                response = client.get("/v1/models", timeout=10)
            _check(response)
            return str(response.json()["data"][0]["id"])
        except (httpx.HTTPError, httpx.InvalidURL, KeyError, IndexError, ValueError) as error:
            raise InvalidArgumentError(f"{self._url} does not answer as an api_server does: {error}; expected the "
                                       "address of a running `lmdeploy serve api_server`") from error

    def stream(self, messages: Messages, settings: Settings) -> Generator[str, None, None]:
        body = {"model": self._model, "messages": messages, "stream": True, "max_tokens": settings.max_new_tokens,
                "top_p": settings.top_p, "temperature": settings.temperature}
        with self._client() as client, client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                response.read()
                _check(response)
            for line in response.iter_lines():
                if line == "data: [DONE]":
                    return
                if line.startswith("data:"):
                    yield _text_of(json.loads(line[len("data:"):]))
            raise RuntimeError("the server ended the connection before the answer was complete")


def _check(response: httpx.Response) -> None:
    """Raises RuntimeError with what the server says."""
    if response.status_code == 200:
        return
    try:
        message = response.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = response.text[:500]
    raise InvalidArgumentError(f"the server answered {response.status_code}: {message}")


def _text_of(chunk: dict[str, Any]) -> str:
    if "error" in chunk:
        raise RuntimeError(f"the server ended the answer: {chunk['error'].get('message', chunk['error'])}")
    return "".join(choice["delta"].get("content") or "" for choice in chunk.get("choices", []))


def is_server(path: str) -> bool:
    """``http://host:port``, or ``host:port`` as in older versions; a path of this machine has no such end."""
    host, colon, port = path.rpartition(":")
    return path.startswith(("http://", "https://")) or bool(colon and host and port.isdigit() and "/" not in path)


def server_url(path: str) -> str:
    """With a scheme and without the last slash; 0.0.0.0, where servers listen, means this machine."""
    url = path if "://" in path else f"http://{path}"
    return url.rstrip("/").replace("://0.0.0.0", "://127.0.0.1").removesuffix("/v1")
