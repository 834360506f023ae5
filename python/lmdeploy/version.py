"""The version of the package, which is that of the native module beside it."""
from __future__ import annotations

import re

from ._core import __version__

short_version = __version__


def parse_version_info(version_str: str) -> tuple[int | str, ...]:
    """``"0.1.0rc2"`` -> ``(0, 1, 0, "rc2")``."""
    parts: list[int | str] = []
    for part in version_str.split("."):
        match = re.fullmatch(r"(\d+)(.*)", part)
        if match is None:
            parts.append(part)
            continue
        parts.append(int(match.group(1)))
        if match.group(2):
            parts.append(match.group(2))
    return tuple(parts)


version_info = parse_version_info(__version__)

__all__ = ["__version__", "parse_version_info", "short_version", "version_info"]
