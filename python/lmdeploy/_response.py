"""What comes back: Response from pipelines, EngineOutput from TurboMind instances."""
from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    from . import _core

_PRINTED = ("input_token_len", "generate_token_len", "finish_reason", "token_ids", "logprobs", "logits",
            "last_hidden_state", "routed_experts")


def _lines(response: Response, text: str) -> str:
    lines = [f"text={text}"]
    for name in _PRINTED:
        value = getattr(response, name)
        if hasattr(value, "shape"):
            lines.append(f"{name}.shape={tuple(value.shape)}")
        lines.append(f'{name}="{value}"' if name == "finish_reason" else f"{name}={value}")
    if response.ppl is not None:
        lines.append(f"ppl={response.ppl}")
    if response.error_message:
        lines.append(f"error_message={response.error_message}")
    return "\n".join(lines)


@dataclass(repr=False)
class Response:
    """An answer, or in a stream one new piece of it.

    Attributes:
        text: The answer; in a stream what is new.
        generate_token_len: Generated tokens, in a stream so far.
        input_token_len: Tokens of the prompt, the chat template's included.
        finish_reason: ``stop`` (a stop word or end token), ``length``, ``abort``, ``error``; None: more is to come.
        token_ids: Ids of the text; a stop token is not among them.
        logprobs: For each token {id: log probability} in nats, the chosen token included; None when not asked for.
        logits: float32 [rows, vocab_size]; None when not asked for.
        last_hidden_state: float32 [rows, hidden_size]; None when not asked for.
        routed_experts: None.
        index: Which prompt of the batch.
        cached_tokens: Tokens of the prompt whose keys and values came from the prefix cache.
        error_code: ``context_length_exceeded`` (with finish_reason ``length``) or the code of an LmdeployError.
        error_message: What went wrong and what to do.
        session_id: The older name of ``index``; in a conversation the session's id.
        ppl: Mean negative log-likelihood of the prompt's tokens, in the last piece; None when not asked for.
        choices: With ``n`` > 1 all answers, this one first; otherwise empty.
    """

    text: str
    generate_token_len: int
    input_token_len: int
    finish_reason: str | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, float]] | None = None
    logits: numpy.ndarray | None = field(default=None, compare=False)
    last_hidden_state: numpy.ndarray | None = field(default=None, compare=False)
    index: int = 0
    routed_experts: Any = field(default=None, compare=False)
    cached_tokens: int = 0
    error_code: str | None = None
    error_message: str | None = None
    session_id: int = 0
    ppl: float | None = None
    choices: list[Response] = field(default_factory=list, compare=False)

    def __str__(self) -> str:
        return _lines(self, self.text)

    def __repr__(self) -> str:
        return _lines(self, repr(self.text))

    def extend(self, other: Response) -> Response:
        """Appends the next piece; lengths, finish_reason and error are ``other``'s. Returns self."""
        self.text += other.text
        self.token_ids.extend(other.token_ids)
        if other.logprobs is not None:
            self.logprobs = [*(self.logprobs or ()), *other.logprobs]
        self.logits = stacked(self.logits, other.logits)
        self.last_hidden_state = stacked(self.last_hidden_state, other.last_hidden_state)
        if other.ppl is not None:
            self.ppl = other.ppl
        for name in ("generate_token_len", "input_token_len", "finish_reason", "index", "cached_tokens",
                     "error_code", "error_message", "session_id"):
            setattr(self, name, getattr(other, name))
        return self


def stacked(first: numpy.ndarray | None, second: numpy.ndarray | None) -> numpy.ndarray | None:
    """The rows of both; either may be missing."""
    if first is None or second is None:
        return second if first is None else first
    import numpy
    return numpy.concatenate([first, second])


@dataclass(repr=False)
class GenOut(Response):
    """What ``Pipeline.generate`` yields: a Response that also goes by its older names."""

    history_token_len: int = 0

    @property
    def response(self) -> str:
        """``text``."""
        return self.text


def response_from_native(native: _core.Response, core: _core.Pipeline, cls: type = Response) -> Any:
    """``native``'s logits and hidden states are moved out of it."""
    error_code = native.error_code
    if error_code == "invalid_argument" and native.finish_reason == "length":
        error_code = "context_length_exceeded"  # the one error that ends with `length`
    return cls(text=native.text, generate_token_len=native.generate_token_len,
               input_token_len=native.input_token_len, finish_reason=native.finish_reason,
               token_ids=native.token_ids, logprobs=native.logprobs, logits=native.take_logits(core.vocab_size),
               last_hidden_state=native.take_hidden_states(core.hidden_size), ppl=native.ppl,
               index=native.index, cached_tokens=native.cached_tokens, error_code=error_code,
               error_message=native.error_message or None, session_id=native.index)


def first_piece(piece: Any) -> Any:
    """A copy to which later pieces can be appended without changing what the caller got."""
    return type(piece)(**{**piece.__dict__, "token_ids": list(piece.token_ids)})


class ResponseType(enum.Enum):
    """Status of an EngineOutput."""

    SUCCESS = enum.auto()  # more to come
    FINISH = enum.auto()
    ENGINE_STOP_ERROR = enum.auto()
    SESSION_REPEAT = enum.auto()
    SESSION_NOT_EXIST = enum.auto()
    HANDLER_NOT_EXIST = enum.auto()
    INPUT_LENGTH_ERROR = enum.auto()
    INTERNAL_ENGINE_ERROR = enum.auto()
    CANCEL = enum.auto()
    PREFIX_CACHE_CONFLICT_INTERACTIVE_MODE = enum.auto()
    NO_QUEUE = enum.auto()
    OUT_OF_MEMORY = enum.auto()


@dataclass
class EngineOutput:
    """One output of a TurboMind instance.

    Attributes:
        status: SUCCESS while more is to come, FINISH at the end, or what went wrong.
        token_ids: Ids that are new since the last output.
        num_token: Tokens generated so far.
        logprobs: For each new token {id: log probability}; None when not asked for.
        logits: float32 [rows, vocab_size]; None when not asked for.
        last_hidden_state: float32 [rows, hidden_size]; None when not asked for.
        cached_tokens: Tokens of the input that came from the prefix cache.
        error_message: What went wrong and what to do.
    """

    status: ResponseType
    token_ids: list[int] = field(default_factory=list)
    num_token: int = 0
    logprobs: list[dict[int, float]] | None = None
    logits: Any = dataclasses.field(default=None, compare=False)
    last_hidden_state: Any = dataclasses.field(default=None, compare=False)
    cached_tokens: int = 0
    error_message: str | None = None
