"""A client of api_server that needs nothing but Python.

    >>> client = APIClient("http://localhost:23333")
    >>> for item in client.chat_completions_v1(client.available_models[0], [{"role": "user", "content": "Hi"}]):
    ...     print(item["choices"][0]["message"]["content"])

What a server refuses is raised as a LmdeployError with the server's words; a server that cannot be reached is an IoError
(an OSError).
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .._http import events, full_url, whole

Messages = str | list[dict[str, Any]]


def get_model_list(api_url: str, api_key: str | None = None) -> list[str]:
    """Names of the models behind ``api_url``, the address of /v1/models."""
    return [card["id"] for card in whole(full_url(api_url), None, api_key)["data"]]


def _fields(arguments: dict[str, Any]) -> dict[str, Any]:
    """The body of a request: a method's arguments by their names. What is None is left to the server."""
    arguments.pop("self")
    fields = {**arguments, **arguments.pop("kwargs", {})}
    fields.pop("kwargs", None)
    return {name: value for name, value in fields.items() if value is not None}


class APIClient:
    """Args:
        api_server_url: ``http://host:port``, or without the scheme.
        api_key: Sent with every request.
    """

    def __init__(self, api_server_url: str, api_key: str | None = None, **kwargs: Any):
        self.api_server_url = full_url(api_server_url)
        self.api_key = api_key
        self._available_models: list[str] | None = None
        for name, path in (("chat_intractive_v1_url", "/v1/chat/interactive"),
                           ("chat_completions_v1_url", "/v1/chat/completions"),
                           ("completions_v1_url", "/v1/completions"), ("models_v1_url", "/v1/models"),
                           ("encode_v1_url", "/v1/encode")):
            setattr(self, name, self.api_server_url + path)

    @property
    def available_models(self) -> list[str]:
        """Names of the models, asked for once."""
        if self._available_models is None:
            self._available_models = get_model_list(self.api_server_url + "/v1/models", self.api_key)
        return self._available_models

    def encode(self, input: str | list[str], do_preprocess: bool = False, add_bos: bool = True) -> tuple[Any, Any]:
        """(token ids, their number) of a text; of a list of texts two lists."""
        answer = whole(self.api_server_url + "/v1/encode",
                       {"input": input, "do_preprocess": do_preprocess, "add_bos": add_bos}, self.api_key)
        return answer["input_ids"], answer["length"]

    def chat_completions_v1(self, model: str, messages: Messages, temperature: float | None = 0.7,
                            top_p: float | None = 1, n: int | None = 1, max_tokens: int | None = None,
                            stop: str | list[str] | None = None, stream: bool | None = False,
                            presence_penalty: float | None = 0.0, frequency_penalty: float | None = 0.0,
                            user: str | None = None, repetition_penalty: float | None = 1.0,
                            session_id: int | None = -1, ignore_eos: bool | None = False,
                            skip_special_tokens: bool | None = True, **kwargs: Any) -> Iterator[dict[str, Any]]:
        """The answer to a conversation, or with ``stream`` its pieces. A text as ``messages`` goes to the model as it
        is. ``kwargs``: more fields of the request."""
        return self._answers("/v1/chat/completions", _fields(locals()))

    def completions_v1(self, model: str, prompt: str | list[Any], suffix: str | None = None,
                       temperature: float | None = 0.7, n: int | None = 1, max_tokens: int | None = 16,
                       stream: bool | None = False, stop: str | list[str] | None = None, top_p: float | None = 1.0,
                       top_k: int | None = 40, presence_penalty: float | None = 0.0,
                       frequency_penalty: float | None = 0.0, user: str | None = None,
                       repetition_penalty: float | None = 1.0, session_id: int | None = -1,
                       ignore_eos: bool | None = False, skip_special_tokens: bool | None = True,
                       **kwargs: Any) -> Iterator[dict[str, Any]]:
        """How a text goes on, or with ``stream`` the pieces of that. ``kwargs``: more fields of the request."""
        return self._answers("/v1/completions", _fields(locals()))

    def chat_interactive_v1(self, prompt: Messages, image_url: str | list[str] | None = None, session_id: int = -1,
                            interactive_mode: bool = False, stream: bool = False,
                            stop: str | list[str] | None = None, request_output_len: int | None = None,
                            top_p: float = 0.8, top_k: int = 40, temperature: float = 0.8,
                            repetition_penalty: float = 1.0, ignore_eos: bool = False,
                            skip_special_tokens: bool = True, **kwargs: Any) -> Iterator[dict[str, Any]]:
        """A turn of a session that the server keeps, when ``interactive_mode`` is on."""
        return self._answers("/v1/chat/interactive", _fields(locals()))

    def chat(self, prompt: str, session_id: int, image_url: str | list[str] | None = None,
             request_output_len: int = 512, stream: bool = False, top_p: float = 0.8, top_k: int = 40,
             temperature: float = 0.8, repetition_penalty: float = 1.0, ignore_eos: bool = False,
             skip_special_tokens: bool = True, **kwargs: Any) -> Iterator[tuple[str, int, str | None]]:
        """(text, number of tokens up to now, finish reason) of each piece of a turn of session ``session_id``."""
        assert session_id != -1, "please set a value other than -1"
        pieces = self._answers("/v1/chat/interactive", {**_fields(locals()), "interactive_mode": True})
        return ((piece["text"], piece["tokens"], piece["finish_reason"]) for piece in pieces)

    def end_session(self, session_id: int) -> None:
        """Ends a session of chat() or chat_interactive_v1()."""
        for _ in self.chat_interactive_v1("", session_id=session_id, request_output_len=0):
            pass

    def _answers(self, path: str, fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
        url = self.api_server_url + path
        if fields.get("stream"):
            yield from events(url, fields, self.api_key)
        else:
            yield whole(url, fields, self.api_key)


if __name__ == "__main__":
    from ..._entry import run_command
    run_command("serve", "api_client")
