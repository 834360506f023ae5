"""Chat templates: the Jinja language of model checkpoints, rendered by the native engine."""
from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from . import _core
from ._inputs import check_text, show
from .errors import ArgumentTypeError


def render(template: str, variables: Mapping[str, Any], now: datetime.datetime | float | None = None) -> str:
    """Renders a template as transformers renders chat templates.

    The language is jinja2's with ``trim_blocks``, ``lstrip_blocks``, loop controls, the ``generation`` tag, transformers'
    ``tojson``, and the functions ``raise_exception`` and ``strftime_now``. It runs in a sandbox with bounds on steps,
    depth and output, so any template ends, whoever wrote it.

        >>> render("{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}",
        ...        {"messages": [{"role": "user", "content": "Hi"}]})
        '[user] Hi'

    Args:
        template: The source text.
        variables: What the template sees, by name: None, bool, int, float, str, and lists and dicts of those. A tuple
            arrives as a list.
        now: What ``strftime_now`` shows: a datetime, or a POSIX timestamp in local time; the current time by default.

    Raises:
        InvalidDataError: (a ValueError) the template has a syntax error; the message names the line.
        InvalidArgumentError: (a ValueError) rendering failed. The message holds the words of ``raise_exception``
            where the template raised it, otherwise what went wrong, and the line.
    """
    check_text(template, "render: the template")
    if not isinstance(variables, Mapping):
        raise ArgumentTypeError(f"render takes a mapping of variables; found {type(variables).__name__}")
    return _core.render_template(template, dict(variables), None if now is None else _local_time(now))


def _local_time(now: datetime.datetime | float) -> _core.LocalTime:
    if isinstance(now, (int, float)) and not isinstance(now, bool):
        try:
            now = datetime.datetime.fromtimestamp(now)
        except (OverflowError, OSError, ValueError) as error:
            raise ArgumentTypeError(f"now: {show(now)} is no timestamp: {error}") from None
    if not isinstance(now, datetime.datetime):
        raise ArgumentTypeError(f"now: expected a datetime or a timestamp, found {type(now).__name__}")
    local = _core.LocalTime()
    local.date = tuple(now.timetuple())[:8]
    local.microsecond = now.microsecond
    local.offset = now.strftime("%z")
    local.zone = now.strftime("%Z")
    return local


__all__ = ["render"]
