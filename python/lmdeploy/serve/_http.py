"""JSON over HTTP with the standard library; a server's refusals become exceptions with the server's words."""
from __future__ import annotations

import contextlib
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from ..errors import (
    ArgumentTypeError,
    BusyError,
    InternalError,
    InvalidArgumentError,
    InvalidDataError,
    IoError,
    LmdeployError,
    NotFoundError,
    UnsupportedError,
)

_CLASSES: dict[int, type[LmdeployError]] = {404: NotFoundError, 409: BusyError, 501: UnsupportedError, 503: BusyError}


def full_url(url: str) -> str:
    """``host:port`` is http."""
    if not isinstance(url, str):
        raise ArgumentTypeError(f"the address of a server is text; found {type(url).__name__}")
    return (url if "://" in url else f"http://{url}").rstrip("/")


def error_of(status: int, body: Any, where: str) -> LmdeployError:
    """In the forms that LMDeploy, OpenAI and FastAPI give their errors."""
    words = body
    if isinstance(body, dict):
        inner = body.get("error")
        words = inner.get("message") if isinstance(inner, dict) else (inner or body.get("message") or body)
    kind = _CLASSES.get(status, InvalidArgumentError if status < 500 else InternalError)
    return kind(f"{where}: status {status}: {words}")


def _error_reply(reply: urllib.error.HTTPError, where: str) -> LmdeployError:
    text = reply.read().decode("utf-8", "replace")
    try:
        return error_of(reply.code, json.loads(text), where)
    except ValueError:
        return error_of(reply.code, text.strip() or reply.reason, where)


@contextlib.contextmanager
def reply_to(url: str, fields: dict[str, Any] | None, api_key: str | None) -> Iterator[http.client.HTTPResponse]:
    """The reply to a GET, or with ``fields`` to a POST of them. Raises IoError when the server cannot be reached or
    breaks off."""
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    data = None if fields is None else json.dumps(fields).encode()
    try:
        request = urllib.request.Request(url, data, headers)
        with urllib.request.urlopen(request) as reply:
            yield reply
    except urllib.error.HTTPError as error:
        with error:
            raise _error_reply(error, url) from None
    except (OSError, http.client.HTTPException) as error:
        raise IoError(f"{url}: {getattr(error, 'reason', None) or repr(error)}") from error


def parse(text: str | bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidDataError(f"{where}: found {text[:80]!r}; expected JSON") from error


def whole(url: str, fields: dict[str, Any] | None, api_key: str | None) -> Any:
    with reply_to(url, fields, api_key) as reply:
        return parse(reply.read(), url)


def events(url: str, fields: dict[str, Any], api_key: str | None) -> Iterator[dict[str, Any]]:
    """The objects of a stream: events (``data: {...}`` up to ``data: [DONE]``), or a JSON object in each line."""
    with reply_to(url, fields, api_key) as reply:
        for line in reply:
            text = line.strip().removeprefix(b"data:").strip()
            if text == b"[DONE]":
                return
            if not text or text.startswith(b":"):
                continue
            item = parse(text, url)
            if isinstance(item, dict) and item.get("error"):
                raise error_of(500, item, url)
            yield item
