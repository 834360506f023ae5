"""A small HTTP/1.1 client on asyncio, for many requests at once: JSON in, JSON or server-sent events out."""
from __future__ import annotations

import asyncio
import json
import ssl
import time
import urllib.parse
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Reply:
    """How one request went; times are those of time.perf_counter()."""

    start: float = 0.0
    end: float = 0.0
    chunk_times: list[float] = field(default_factory=list)  # of the pieces with text in them
    text: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str = ""  # empty: it went well

    @property
    def latency(self) -> float:
        return self.end - self.start

    @property
    def ttft(self) -> float:
        return self.chunk_times[0] - self.start if self.chunk_times else self.latency


class Connection:
    """One request."""

    def __init__(self, base_url: str, api_key: str | None = None):
        url = urllib.parse.urlsplit(base_url if "://" in base_url else f"http://{base_url}")
        self.tls = ssl.create_default_context() if url.scheme == "https" else None
        self.host, self.port = url.hostname or "127.0.0.1", url.port or (443 if self.tls else 80)
        self.prefix = url.path.rstrip("/").removesuffix("/v1")
        self.key = f"Authorization: Bearer {api_key}\r\n" if api_key else ""

    async def open(self, method: str, path: str, body: Any = None) -> int:
        """Sends the request; the status of the answer."""
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port, ssl=self.tls, limit=1 << 22)
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        self.writer.write(f"{method} {self.prefix}{path} HTTP/1.1\r\nHost: {self.host}\r\n{self.key}Content-Type: "
                          f"application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
        await self.writer.drain()
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        self.chunked = "\r\ntransfer-encoding: chunked" in head
        return int(head.split(" ", 2)[1])

    async def pieces(self) -> AsyncIterator[bytes]:
        if not self.chunked:
            yield await self.reader.read(-1)
            return
        while size := int((await self.reader.readline()).split(b";")[0] or b"0", 16):
            yield (await self.reader.readexactly(size + 2))[:-2]

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    async def events(self) -> AsyncIterator[str]:
        """What stands after ``data:``, up to [DONE]."""
        rest = b""
        async for piece in self.pieces():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    text = line[5:].strip().decode()
                    if text == "[DONE]":
                        return
                    yield text

    def close(self) -> None:
        if hasattr(self, "writer"):
            self.writer.close()


def _piece_text(choice: dict) -> str:
    delta = choice.get("delta") or {}
    return choice.get("text") or delta.get("content") or delta.get("reasoning_content") or ""


async def _read_stream(connection: Connection, reply: Reply) -> None:
    async for event in connection.events():
        chunk = json.loads(event)
        if chunk.get("error"):
            reply.error = str(chunk["error"].get("message"))
            return
        text = "".join(_piece_text(choice) for choice in chunk.get("choices", ()))
        if text:
            reply.chunk_times.append(time.perf_counter())
            reply.text += text
        if chunk.get("usage"):
            _take_usage(chunk["usage"], reply)


def _take_usage(usage: dict, reply: Reply) -> None:
    reply.prompt_tokens = usage.get("prompt_tokens", 0)
    reply.completion_tokens = usage.get("completion_tokens", 0)


async def ask(base_url: str, path: str, body: dict, api_key: str | None = None) -> Reply:
    """One completion or chat, streamed if its body says so."""
    reply = Reply(start=time.perf_counter())
    connection = Connection(base_url, api_key)
    try:
        status = await connection.open("POST", path, body)
        if status == 200 and body.get("stream"):
            await _read_stream(connection, reply)
            reply.completion_tokens = reply.completion_tokens or len(reply.chunk_times)
        else:
            answer = json.loads(await connection.read())
            if status != 200:
                reply.error = f"status {status}: {answer.get('message') or answer}"
            else:
                choice = answer["choices"][0]
                reply.text = choice.get("text") or (choice.get("message") or {}).get("content") or ""
                _take_usage(answer.get("usage") or {}, reply)
    except (OSError, ValueError, KeyError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        reply.error = repr(error)
    finally:
        reply.end = time.perf_counter()
        connection.close()
    return reply


async def get_json(base_url: str, path: str, api_key: str | None = None) -> Any:
    connection = Connection(base_url, api_key)
    try:
        await connection.open("GET", path)
        return json.loads(await connection.read())
    finally:
        connection.close()


async def first_model(base_url: str, api_key: str | None = None) -> str:
    return (await get_json(base_url, "/v1/models", api_key))["data"][0]["id"]


async def run_requests(bodies: list[dict], base_url: str, path: str, api_key: str | None = None,
                       concurrency: int | None = None, delays: list[float] | None = None) -> list[Reply]:
    """All of them, at most ``concurrency`` at once, each after its delay from the beginning."""
    gate = asyncio.Semaphore(concurrency or len(bodies) or 1)

    async def one(body: dict, delay: float) -> Reply:
        await asyncio.sleep(delay)
        async with gate:
            return await ask(base_url, path, body, api_key)

    return await asyncio.gather(*map(one, bodies, delays or [0.0] * len(bodies)))
