"""What comes from outside is checked here before native code sees it: text, integers, flags, token ids, paths."""
from __future__ import annotations

import os
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from .errors import ArgumentTypeError, InvalidArgumentError

MAX_INT = 2**31 - 1


def show(value: Any) -> str:
    """``repr``, but short, also of integers with thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    return reprlib.repr(value)


def plain(value: Any) -> Any:
    """Arrays, tensors and their numbers as lists and numbers."""
    return value.tolist() if hasattr(value, "tolist") else value


def check_text(text: Any, where: str) -> str:
    """``text``. Raises for anything but text that UTF-8 can write."""
    if not isinstance(text, str):
        raise ArgumentTypeError(f"{where} is {type(text).__name__}; expected text")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"{where} holds the lone surrogate U+{ord(text[error.start]):04X} at index "
                                       f"{error.start}; expected text that UTF-8 can write") from None
    return text


def check_int(value: Any, where: str, low: int = 0, high: int = MAX_INT) -> int:
    """``value`` as a plain int. Raises for other types and values outside [low, high]."""
    value = plain(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentTypeError(f"{where} is {show(value)} ({type(value).__name__}); expected an integer")
    if not low <= value <= high:
        raise InvalidArgumentError(f"{where} is {show(value)}; expected {low} to {high}")
    return int(value)


def check_session_id(value: Any) -> int:
    """``value`` as a plain int. Raises for other types and negative or enormous numbers."""
    return check_int(value, "session_id", high=2**63 - 1)


def check_flag(value: Any, where: str) -> bool:
    """``value``. Raises for anything but True and False."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(f"{where} is {show(value)}; expected True or False")
    return value


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


def _check_id(token: Any, where: str, high: int) -> int:
    token = plain(token)
    if isinstance(token, bool) or not hasattr(token, "__index__"):
        raise ArgumentTypeError(f"{where} is {show(token)} ({type(token).__name__}); expected a token id")
    if not 0 <= token <= high:
        raise InvalidArgumentError(f"{where} is {show(token)}; expected a token id, 0 to {high}")
    return int(token)


def check_ids(ids: Any, where: str, vocab_size: int | None = None) -> list[int]:
    """Token ids of a list, array or tensor. Raises for other types and ids outside the vocabulary."""
    ids = plain(ids)
    if not _is_list(ids):
        raise ArgumentTypeError(f"{where} is {show(ids)} ({type(ids).__name__}); expected a list of token ids")
    high = MAX_INT if vocab_size is None else vocab_size - 1
    tokens = list(ids)
    if not (set(map(type, tokens)) <= {int} and 0 <= min(tokens, default=0) and max(tokens, default=0) <= high):
        tokens = [_check_id(token, f"{where}[{i}]", high) for i, token in enumerate(tokens)]
    return tokens


def check_id_lists(ids: Any, where: str, vocab_size: int | None = None) -> list[list[int]]:
    """Several lists of token ids; a single one becomes a list of one."""
    ids = plain(ids)
    if not _is_list(ids):
        raise ArgumentTypeError(f"{where} is {show(ids)} ({type(ids).__name__}); expected a list of token ids, or a "
                                "list of such lists")
    lists = list(ids)
    if lists and not _is_list(plain(lists[0])):
        return [check_ids(lists, where, vocab_size)]
    return [check_ids(item, f"{where}[{i}]", vocab_size) for i, item in enumerate(lists)]


def check_path(path: Any, where: str) -> str:
    """``path`` as text, ``~`` expanded. Names that are not UTF-8 hold surrogates, as Python's own paths do."""
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentTypeError(f"{where} is {type(path).__name__}; expected the path of a model folder or file")
    text = os.path.expanduser(os.fsdecode(path))
    try:
        valid = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise InvalidArgumentError(f"{where} is {text!r}; no path can hold such a character")
    return text
