"""Warnings that appear once per process, whatever the warning filters do with the place they come from."""
from __future__ import annotations

import sys
import threading
import warnings
from pathlib import Path

from .errors import LmdeployWarning

_lock = threading.Lock()
_seen: set[str] = set()


def reset() -> None:
    """Forgets which warnings have been given (for tests)."""
    with _lock:
        _seen.clear()


def _caller_depth() -> int:
    """Frames between warn_once()'s caller chain and the first frame outside this package."""
    package = str(Path(__file__).parent)
    depth = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame = frame.f_back
        depth += 1
    return depth


def warn_once(message: str, category: type[Warning] = LmdeployWarning) -> None:
    """Warns at the line of the user's code that led here, the first time this message comes up."""
    with _lock:
        if message in _seen:
            return
        _seen.add(message)
    warnings.warn(message, category, stacklevel=_caller_depth())
