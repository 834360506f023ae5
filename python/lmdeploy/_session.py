"""Session: a conversation with a pipeline."""
from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from . import _core
from ._generation import GenerationConfig
from ._response import Response
from .errors import BusyError

if TYPE_CHECKING:
    from ._pipeline import Pipeline


class Session:
    """A conversation; made by ``pipe.session()`` or ``pipe.chat(prompt)``. Pass it to ``pipe.chat`` for the next turn.
    It runs one turn at a time, until the answer has been read to its end or its iterator dropped.

    Attributes:
        response: The Response of the last turn; None before the first.
    """

    def __init__(self, pipe: Pipeline, native: _core.ChatSession, gen_config: GenerationConfig | None = None):
        self._pipe = pipe
        self._native = native
        self._gen_config = gen_config
        self._lock = threading.RLock()  # re-entrant: the garbage collector may drop a turn anywhere
        self._turn: weakref.ref[Any] | None = None  # the group of the running turn; dead once nobody can read it
        self._history: list[tuple[str, str]] = []
        self.response: Response | None = None

    @property
    def history(self) -> list[tuple[str, str]]:
        """(prompt, answer) of each finished turn; a copy."""
        return list(self._history)

    @property
    def session_id(self) -> int:
        """A number that no other session of the pipeline has."""
        return self._native.session_id

    @property
    def step(self) -> int:
        """Tokens whose keys and values the engine keeps for this session."""
        return self._native.step

    def __call__(self, prompt: str, gen_config: GenerationConfig | None = None, stream_response: bool = True,
                 **kwargs: Any) -> Any:
        """One turn; see ``Pipeline.chat``. Streams unless ``stream_response`` is False."""
        result = self._pipe.chat(prompt, self, gen_config or self._gen_config, stream_response=stream_response,
                                 **kwargs)
        return result if stream_response else self.response

    def abort(self) -> None:
        """Stops the running turn; it ends with finish_reason ``abort``."""
        group = self._running()
        if group is not None:
            group.cancel_all()

    stop = abort

    def close(self) -> None:
        """Frees what the engine keeps and forgets the conversation; a later turn begins a new one."""
        self.abort()
        with self._lock:
            self._turn = None
        self._pipe._forget_session(self)
        self._history = []
        self.response = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session(session_id={self.session_id}, step={self.step}, rounds={len(self._history)})"

    def __str__(self) -> str:
        rounds = "".join(f"USER:\n{prompt}\nASSISTANT:\n{answer}\n" for prompt, answer in self._history)
        return f"{self!r}\nHistory:\n{rounds}"

    def _running(self) -> Any:
        """The group of the running turn, or None."""
        return None if self._turn is None else self._turn()

    def _claim(self, group: Any) -> None:
        """A turn begins in ``group``. Raises BusyError while another one runs."""
        with self._lock:
            if self._running() is not None:
                raise BusyError(f"session {self.session_id} runs a turn already; read its answer to the end, or drop its "
                                "iterator, before the next turn")
            self._turn = weakref.ref(group)

    def _release(self, group: Any) -> bool:
        """The turn in ``group`` is over. False: it was not the session's any more."""
        with self._lock:
            if self._running() is not group:
                return False
            self._turn = None
            return True


def end_turn(session: Session, group: Any, prompt: str, answer: Response) -> None:
    """The turn in ``group`` has ended; one that failed is not part of the conversation."""
    if not session._release(group):
        return
    session.response = answer
    if answer.error_message is None and answer.finish_reason != "error":
        session._history.append((prompt, answer.text))
