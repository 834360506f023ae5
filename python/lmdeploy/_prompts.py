"""Which of the documented prompt shapes a value has."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ._inputs import check_text
from .errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError

_SHAPES = "a prompt is text, a list of {'role', 'content'} messages, or a list of such prompts"


def _refuse(prompt: Any, where: str) -> None:
    if isinstance(prompt, tuple):
        raise UnsupportedError(f"{where} is a tuple, which means text with pictures: this model takes no images; pass "
                               "the text alone")
    if isinstance(prompt, dict):
        raise ArgumentTypeError(f"{where} is a single message; put it into a list: [message]")
    if isinstance(prompt, list) and not prompt:
        raise InvalidArgumentError(f"{where} is an empty list: a conversation holds at least one message")
    raise ArgumentTypeError(f"{where} is {type(prompt).__name__}, not text: {_SHAPES}")


def is_messages(prompt: Any) -> bool:
    """A conversation: a non-empty list that starts with a dict."""
    return isinstance(prompt, list) and len(prompt) > 0 and isinstance(prompt[0], dict)


def _check_one(prompt: Any, where: str) -> None:
    if isinstance(prompt, str):
        check_text(prompt, where)
        return
    if not is_messages(prompt):
        _refuse(prompt, where)
    for i, message in enumerate(prompt):
        if not isinstance(message, dict):
            raise ArgumentTypeError(f"{where}[{i}] is {type(message).__name__}; expected a message like the ones "
                                    "before it")


def split_prompts(prompts: Any) -> tuple[list[Any], bool]:
    """The prompts as a list, and whether a single one was given. Raises for anything that is not text."""
    if isinstance(prompts, (str, tuple, dict, bytes)) or is_messages(prompts):
        _check_one(prompts, "the prompt")
        return [prompts], True
    if not isinstance(prompts, (list, Iterator)):  # a set has no order; an array holds numbers
        _refuse(prompts, "the prompt")
    batch = list(prompts)
    for i, prompt in enumerate(batch):
        _check_one(prompt, f"prompts[{i}]")
    return batch, False
