"""Session: a conversation with a pipeline."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core
from ._generation import GenerationConfig
from ._response import Response

if TYPE_CHECKING:
    from ._pipeline import Pipeline


class Session:
    """A conversation; made by ``pipe.session()`` or ``pipe.chat(prompt)``. Pass it to ``pipe.chat`` for the next turn.

    Attributes:
        history: (prompt, answer) of each finished turn.
        response: The Response of the last turn; None before the first.
    """

    def __init__(self, pipe: Pipeline, native: _core.ChatSession, gen_config: GenerationConfig | None = None):
        self._pipe = pipe
        self._native = native
        self._gen_config = gen_config
        self._group: Any = None  # what runs now
        self.history: list[tuple[str, str]] = []
        self.response: Response | None = None

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
        if self._group is not None:
            self._group.cancel_all()

    stop = abort

    def close(self) -> None:
        """Frees what the engine keeps and forgets the conversation; a later turn begins a new one."""
        self.abort()
        self._pipe._forget_session(self)
        self.history = []
        self.response = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session(session_id={self.session_id}, step={self.step}, rounds={len(self.history)})"

    def __str__(self) -> str:
        rounds = "".join(f"USER:\n{prompt}\nASSISTANT:\n{answer}\n" for prompt, answer in self.history)
        return f"{self!r}\nHistory:\n{rounds}"


def end_turn(session: Session, prompt: str, answer: Response) -> None:
    """A turn has ended; one that failed is not part of the conversation."""
    session._group = None
    session.response = answer
    if answer.error_message is None and answer.finish_reason != "error":
        session.history.append((prompt, answer.text))
