"""The page: a conversation, an instruction, sliders, Cancel and Reset."""
from __future__ import annotations

import contextlib
import inspect
import queue
import threading
from collections.abc import Generator, Iterator
from typing import Any, Protocol

import gradio

from .backends import Messages, Settings

MAX_ANSWERS_AT_ONCE = 64
_END = object()
# gradio shows Markdown with some HTML; a picture in an answer must not tell another server who reads it.
_HEAD = """<meta http-equiv="Content-Security-Policy" content="img-src 'self' data: blob:">"""


class Backend(Protocol):
    name: str

    def stream(self, messages: Messages, settings: Settings) -> Generator[str, None, None]: ...


class Cancels:
    """One flag for each browser tab whose answer may be cancelled."""

    def __init__(self) -> None:
        self._flags: dict[str, threading.Event] = {}

    @contextlib.contextmanager
    def of(self, tab: str) -> Iterator[threading.Event]:
        flag = self._flags[tab] = threading.Event()
        try:
            yield flag
        finally:
            if self._flags.get(tab) is flag:
                del self._flags[tab]

    def cancel(self, tab: str) -> None:
        flag = self._flags.get(tab)
        if flag is not None:
            flag.set()


def until_cancelled(stream: Generator[str, None, None], cancelled: threading.Event) -> Iterator[str]:
    """The pieces of ``stream``, read by a thread of its own: a cancel is heard while a piece is waited for."""
    pieces: queue.Queue[Any] = queue.Queue()

    def read() -> None:
        try:
            with contextlib.closing(stream):
                for piece in stream:
                    if cancelled.is_set():
                        break
                    pieces.put(piece)
            pieces.put(_END)
        except Exception as error:
            pieces.put(error)

    threading.Thread(target=read, daemon=True).start()
    try:
        while not cancelled.is_set():
            try:
                piece = pieces.get(timeout=0.05)
            except queue.Empty:
                continue
            if piece is _END:
                return
            if isinstance(piece, Exception):
                raise piece
            yield piece
    finally:
        cancelled.set()  # the reader ends even when nobody takes its pieces any more


def to_messages(history: list[dict[str, Any]], instruction: str) -> Messages:
    """What the model gets of what the page shows."""
    messages = [{"role": turn["role"], "content": text_of(turn["content"])} for turn in history]
    if instruction.strip():
        messages.insert(0, {"role": "system", "content": instruction})
    return messages


def text_of(content: Any) -> str:
    """Newer versions of gradio hold a message as a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def _chatbot() -> Any:
    # Only version 5 has to be told that turns have roles.
    kind = {"type": "messages"} if "type" in inspect.signature(gradio.Chatbot.__init__).parameters else {}
    return gradio.Chatbot(label="Conversation", height="42vh", **kind)


def _handlers(backend: Backend) -> tuple[Any, Any, Any]:
    cancels = Cancels()

    def say(text: str, history: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
        return "", [*history, {"role": "user", "content": text}] if text.strip() else history

    def answer(history: list[dict[str, Any]], instruction: str, max_new_tokens: float, top_p: float,
               temperature: float, request: gradio.Request) -> Iterator[list[dict[str, Any]]]:
        if not history or history[-1]["role"] != "user":
            return
        settings = Settings(int(max_new_tokens), top_p, temperature)
        stream = backend.stream(to_messages(history, instruction), settings)
        text = ""
        with cancels.of(str(request.session_hash)) as cancelled:
            try:
                for piece in until_cancelled(stream, cancelled):
                    text += piece
                    yield [*history, {"role": "assistant", "content": text}]
            except Exception as error:
                raise gradio.Error(str(error)) from error

    def cancel(request: gradio.Request) -> None:
        cancels.cancel(str(request.session_hash))

    return say, answer, cancel


def build(backend: Backend, instruction: str = "") -> Any:
    """A gradio.Blocks; ``launch()`` serves it."""
    say, answer, cancel = _handlers(backend)
    with gradio.Blocks(title="LMDeploy", analytics_enabled=False) as page:
        gradio.Markdown(f"## LMDeploy\n{backend.name}")
        chat = _chatbot()
        system = gradio.Textbox(value=instruction, label="Instruction", lines=1, max_lines=6)
        text = gradio.Textbox(label="Message", placeholder="Enter sends, Shift+Enter starts a new line", lines=1,
                              max_lines=8, autofocus=True)
        with gradio.Row():
            cancel_button = gradio.Button("Cancel")
            reset_button = gradio.Button("Reset")
        with gradio.Row():
            most = gradio.Slider(1, 2048, value=512, step=1, label="Maximum new tokens")
            top_p = gradio.Slider(0.01, 1, value=0.8, step=0.01, label="Top_p")
            temperature = gradio.Slider(0.01, 1.5, value=0.7, step=0.01, label="Temperature")
        text.submit(say, [text, chat], [text, chat], queue=False).then(
            answer, [chat, system, most, top_p, temperature], chat, concurrency_limit=MAX_ANSWERS_AT_ONCE)
        cancel_button.click(cancel, queue=False)
        reset_button.click(cancel, queue=False).then(lambda: ([], ""), None, [chat, text], queue=False)
        page.unload(cancel)
    return page


def launch(backend: Backend, server_name: str, server_port: int, share: bool = False, instruction: str = "",
           block: bool = True) -> Any:
    """Serves the page. Text comes from this machine's own fonts: nothing is loaded from elsewhere."""
    look = {"head": _HEAD, "theme": gradio.themes.Default(font=["system-ui", "sans-serif"],
                                                          font_mono=["ui-monospace", "monospace"])}
    page = build(backend, instruction)
    options: dict[str, Any] = {"share": share, "show_error": True, "prevent_thread_lock": not block, "quiet": True}
    if server_name != "huggingface-space":  # there the platform chooses both
        options.update(server_name=server_name, server_port=server_port)
    if "theme" in inspect.signature(gradio.Blocks.launch).parameters:
        options.update(look)
    else:  # before version 6
        page.theme, page.head = look["theme"], _HEAD
    return page.queue().launch(**options)
