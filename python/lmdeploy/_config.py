"""The base of all config classes: field types are checked, unknown names refused, and what the caller set is known."""
from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import functools
import numbers
import operator
import types
import typing
from typing import Any

from ._inputs import MAX_INT, check_text, plain, show
from .errors import ArgumentTypeError, ConfigValueError

_MISMATCH = object()


def _convert_number(value: Any, kind: type) -> Any:
    """numpy numbers become plain ones; a bool is not a number here."""
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return _MISMATCH
    value = plain(value)
    if kind is int:
        return operator.index(value) if hasattr(value, "__index__") else _MISMATCH
    return float(value) if isinstance(value, numbers.Real) else _MISMATCH


def _convert_items(value: Any, hints: tuple, container: type) -> Any:
    if container is dict:
        if not isinstance(value, collections.abc.Mapping):
            return _MISMATCH
        flat = [convert(item, hint) for pair in value.items() for item, hint in zip(pair, hints, strict=True)]
        return _MISMATCH if _has_mismatch(flat) else dict(zip(flat[::2], flat[1::2], strict=True))
    value = plain(value)
    if isinstance(value, (str, bytes, collections.abc.Mapping)) or not isinstance(value, collections.abc.Iterable):
        return _MISMATCH
    items = [convert(item, hints[0]) for item in value]
    return _MISMATCH if _has_mismatch(items) else items


def _has_mismatch(items: list) -> bool:
    return any(item is _MISMATCH for item in items)


def convert(value: Any, hint: Any) -> Any:
    """``value`` as ``hint`` has it, or ``_MISMATCH``. Nothing is guessed: "4" is no int."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        converted = (convert(value, option) for option in typing.get_args(hint))
        return next((item for item in converted if item is not _MISMATCH), _MISMATCH)
    if origin in (list, dict):
        return _convert_items(value, typing.get_args(hint), origin)
    if origin is collections.abc.Callable:
        return value if callable(value) else _MISMATCH
    if hint in (int, float):
        return _convert_number(value, hint)
    if hint is bool and type(value).__name__ == "bool_":
        return bool(value)
    return value if isinstance(value, hint) else _MISMATCH


def _check_leaves(value: Any, where: str) -> None:
    """Native integers have 32 bits, native text is UTF-8. Values of mappings are checked where they are used."""
    if isinstance(value, str):
        check_text(value, where)
    elif isinstance(value, int) and not -MAX_INT <= value <= MAX_INT:
        raise ConfigValueError(f"{where} is {show(value)}; expected 0 to {MAX_INT}")
    elif isinstance(value, dict):
        for key in value:
            _check_leaves(key, f"{where}: a key")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _check_leaves(item, f"{where}[{i}]")


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


class Config:
    """Base of the config dataclasses.

    Raises ArgumentTypeError (a TypeError and ValueError) for unknown names and values of the wrong type, at
    construction and at assignment.
    """

    _WIDE: tuple[str, ...] = ()  # names of fields whose integers may be of any size

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        names = list(cls.__dataclass_fields__)  # type: ignore[attr-defined]
        unknown = next((name for name in kwargs if name not in names), None)
        if unknown is not None:
            close = difflib.get_close_matches(unknown, names, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; its fields are {', '.join(names)}"
            raise ArgumentTypeError(f"{cls.__name__} has no field {unknown!r}{hint}")
        self = super().__new__(cls)
        self.__dict__["_given"] = {*names[: len(args)], *kwargs}
        return self

    def __post_init__(self) -> None:
        for name in self._given:  # defaults need no check
            self.__dict__[name] = self._checked(name, self.__dict__[name])
        if len(self._given) == len(self.__dataclass_fields__):  # type: ignore[attr-defined]
            self.__dict__["_given"] = self.changed()  # dataclasses.replace() passes every field
        self.__dict__["_ready"] = True
        self._validate()

    def __setattr__(self, name: str, value: Any) -> None:
        if "_ready" in self.__dict__:
            value = self._checked(name, value)
            self._given.add(name)
        self.__dict__[name] = value

    def _checked(self, name: str, value: Any) -> Any:
        hint = _hints(type(self)).get(name)  # type: ignore[arg-type]
        if hint is None:
            raise ArgumentTypeError(f"{type(self).__name__} has no field {name!r}")
        where = f"{type(self).__name__}.{name}"
        try:
            converted = convert(value, hint)
        except OverflowError:
            raise ConfigValueError(f"{where} is {show(value)}; expected a number below 1e308") from None
        if converted is _MISMATCH:
            expected = str(hint.__name__ if isinstance(hint, type) else hint).replace("typing.", "")
            raise ArgumentTypeError(f"{where} is {show(value)} ({type(value).__name__}); expected {expected}")
        if name not in self._WIDE:
            _check_leaves(converted, where)
        return converted

    def check_again(self) -> None:
        """What the constructor checks: fields may have been assigned, lists and dicts changed in place since."""
        for name, value in list(self.__dict__.items()):
            if isinstance(value, (list, dict)) and not name.startswith("_"):
                self.__dict__[name] = self._checked(name, value)
        self._validate()

    def _validate(self) -> None:
        """Ranges; subclasses raise ConfigValueError."""

    @property
    def _given(self) -> set[str]:
        return self.__dict__["_given"]

    def given(self, name: str) -> bool:
        """Whether the caller set this field, be it to its default."""
        return name in self._given

    def changed(self) -> set[str]:
        """Names of the fields that differ from their defaults."""
        return {field.name for field in dataclasses.fields(self)  # type: ignore[arg-type]
                if self.__dict__[field.name] != default_of(field)}


def default_of(field: dataclasses.Field) -> Any:
    """The default of a dataclass field; MISSING when it has none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
