"""Text to token ids and back."""
from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _core
from ._hub import local_path
from ._inputs import MAX_INT, check_flag, check_ids, check_int, check_text, plain
from .errors import ArgumentTypeError

_FEW = 5  # indexes_containing_token: more pieces than that make the word too common


@dataclass
class TokenizerOutput:
    """What calling a tokenizer gives."""

    input_ids: Any


@dataclass
class DetokenizeState:
    """How far ``Tokenizer.detokenize_incrementally`` has come; one per stream."""

    ids_offset: int = 0
    _stream: Any = field(default=None, repr=False, compare=False)


class Detokenizer:
    """Token ids that arrive one after another to text; one per stream, not thread-safe.

    The joined pieces are what ``Tokenizer.decode`` makes of all ids; no piece splits a character.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True):
        self._native = _core.Detokenizer(tokenizer._native, skip_special_tokens)

    def push(self, ids: int | Sequence[int]) -> str:
        """The text that is certain now; may be empty."""
        ids = plain(ids)
        return self._native.push(check_ids([ids] if hasattr(ids, "__index__") else ids, "push: ids"))

    def finish(self) -> str:
        """What was held back. The stream is used up."""
        return self._native.finish()


class Tokenizer:
    """The tokenizer of a model; thread-safe.

    Args:
        model_path: A model folder, or one file: tokenizer.json, .gguf, .model (SentencePiece or Llama 3), or .tiktoken
            with a tiktoken.json beside it or a known name. Or the name of a model on a hub, ``org/name``.

    Raises:
        NotFoundError: (a FileNotFoundError) there is no tokenizer there, or no such model.
        UnsupportedError: (a NotImplementedError) its kind is not supported.
        InvalidDataError: (a ValueError) a file is damaged.
    """

    def __init__(self, model_path: str | os.PathLike[str], trust_remote_code: bool = False):
        self._native = _core.Tokenizer.load(local_path(model_path, weights=False))

    @classmethod
    def _of(cls, native: _core.Tokenizer) -> Tokenizer:
        self = cls.__new__(cls)
        self._native = native
        return self

    @property
    def vocab_size(self) -> int:
        """Ids run from 0 to this minus 1, added tokens included."""
        return self._native.vocab_size

    @property
    def bos_token_id(self) -> int | None:
        """The id that opens a text; None when there is none."""
        return self._native.bos_id

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends a text; None when there is none."""
        return self._native.eos_id

    def encode(self, s: str, add_bos: bool = True, add_special_tokens: bool = True,
               parse_special: bool | None = None) -> list[int]:
        """Token ids of a text.

        Args:
            add_bos: False drops a leading BOS.
            add_special_tokens: Whether the tokenizer's own rules (BOS, EOS) apply.
            parse_special: Whether the text of special tokens in ``s`` becomes their ids. None: yes for tokenizer.json,
                model folders and .gguf, no for a .model or .tiktoken file by itself.
        """
        check_text(s, "encode: the text")
        if parse_special is not None:
            check_flag(parse_special, "parse_special")
        ids = self._native.encode(s, check_flag(add_special_tokens, "add_special_tokens"), parse_special)
        if not check_flag(add_bos, "add_bos") and ids and ids[0] == self.bos_token_id:
            ids = ids[1:]
        return ids

    def decode(self, t: int | Sequence[int], offset: int | None = None, skip_special_tokens: bool = True) -> str:
        """Text of token ids.

        Args:
            t: Ids, or a single one.
            offset: Gives the text of ``t[offset:]`` as it continues ``t[:offset]``.
            skip_special_tokens: Leave control tokens out.
        """
        t = plain(t)
        ids = check_ids([t] if hasattr(t, "__index__") else t, "decode: ids")
        check_flag(skip_special_tokens, "skip_special_tokens")
        offset = 0 if offset is None else check_int(offset, "offset", low=-MAX_INT)
        if offset == 0:
            return self._native.decode(ids, skip_special_tokens)
        stream = _core.Detokenizer(self._native, skip_special_tokens)
        stream.push(ids[:offset])
        return stream.push(ids[offset:]) + stream.finish()

    def decode_pieces(self, t: Sequence[int], skip_special_tokens: bool = True) -> list[str]:
        """What each id adds to the text, for instance beside its logprob; joined, the pieces are ``decode(t)``.

        A character that several ids spell is in the piece of the last one.
        """
        ids = check_ids(plain(t), "decode_pieces: ids")
        return self._native.decode_pieces(ids, check_flag(skip_special_tokens, "skip_special_tokens"))

    def detokenizer(self, skip_special_tokens: bool = True) -> Detokenizer:
        """A stream that turns ids into text as they arrive."""
        return Detokenizer(self, skip_special_tokens)

    def detokenize_incrementally(self, all_input_ids: Sequence[int], state: DetokenizeState,
                                 skip_special_tokens: bool = True,
                                 spaces_between_special_tokens: bool = True) -> tuple[str, DetokenizeState]:
        """The text that is new since the last call; never half a character.

        Args:
            all_input_ids: All ids so far.
            state: From the last call; ``DetokenizeState()`` at first.
        """
        check_flag(skip_special_tokens, "skip_special_tokens")
        if state._stream is None:
            state._stream = _core.Detokenizer(self._native, skip_special_tokens)
        all_input_ids = plain(all_input_ids)
        if not isinstance(all_input_ids, Sequence):
            raise ArgumentTypeError(f"all_input_ids is {type(all_input_ids).__name__}; expected a list of token ids")
        new_ids = check_ids(all_input_ids[state.ids_offset:], "all_input_ids")
        state.ids_offset = len(all_input_ids)
        return state._stream.push(new_ids), state

    def __call__(self, s: str | Sequence[str]) -> Any:
        """An object with ``input_ids``; for a list of texts a list of id lists."""
        if isinstance(s, str):
            return TokenizerOutput(self.encode(s))
        s = plain(s)
        if not isinstance(s, Iterable):
            raise ArgumentTypeError(f"a tokenizer takes text or a list of texts; found {type(s).__name__}")
        return TokenizerOutput([self.encode(text) for text in s])

    @functools.cached_property
    def _pieces(self) -> list[bytes]:
        return [self._native.token_bytes(token) or self._native.token_text(token).encode()
                for token in range(self.vocab_size)]

    @functools.cached_property
    def prefix_space_tokens(self) -> set[int]:
        """Ids whose text begins with a space."""
        return {token for token, piece in enumerate(self._pieces) if piece.startswith(b" ")}

    def indexes_containing_token(self, token: str) -> list[int]:
        """Ids whose text contains ``token`` when they are at most 5, otherwise those whose text is just that."""
        wanted = check_text(token, "token").encode()
        containing = [index for index, piece in enumerate(self._pieces) if wanted in piece]
        if len(containing) <= _FEW:
            return containing
        return [index for index in containing if self._pieces[index].strip() == wanted]


__all__ = ["DetokenizeState", "Detokenizer", "Tokenizer"]
