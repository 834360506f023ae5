"""A progress bar on standard error: tqdm's when installed, otherwise a plain one."""
from __future__ import annotations

import shutil
import sys
from typing import Any

_WIDTH = 30


class PlainBar:
    """Rewrites one line: ``Loading [#####.....] 50% (1/2)``; without the bar where the terminal is too narrow."""

    def __init__(self, total: int, description: str):
        self.total = max(total, 1)
        self._description = description
        self._shown = ""
        self.n = 0

    def update(self, step: int) -> None:
        """Moves the bar by ``step``."""
        self.n += step
        filled = _WIDTH * self.n // self.total
        share = f"{100 * self.n // self.total}% ({self.n}/{self.total})"
        line = f"\r{self._description} [{'#' * filled}{'.' * (_WIDTH - filled)}] {share}"
        if len(line) > shutil.get_terminal_size().columns:
            line = "\r" + share
        if line != self._shown:
            print(line, end="", file=sys.stderr, flush=True)
            self._shown = line

    def close(self) -> None:
        """Ends the line."""
        print(file=sys.stderr, flush=True)


def _make_bar(total: int, description: str, unit: str) -> Any:
    try:
        from tqdm import tqdm  # type: ignore[import-untyped]
    except ImportError:
        return PlainBar(total, description)
    return tqdm(total=total, desc=description, unit=unit, unit_scale=unit == "B")


class Progress:
    """Called with (done) or (done, total); the bar appears with the first call that knows a total."""

    def __init__(self, description: str, unit: str, total: int = 0):
        self._description = description
        self._unit = unit
        self._total = total
        self._bar: Any = None

    def __call__(self, done: int, total: int = 0) -> None:
        if total + self._total == 0:
            return
        if self._bar is None:
            self._bar = _make_bar(total or self._total, self._description, self._unit)
        self._bar.total = max(total, self._bar.total)  # of a download it grows
        self._bar.update(done - self._bar.n)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._bar is not None:
            self._bar.close()
