"""``python -m lmdeploy.serve.proxy.proxy --server_name ...``: the older spelling of ``lmdeploy serve proxy``."""
from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable

from ...__main__ import find_program

_DEFAULT_PORT = "10086"  # the native command has another one
_FALSE = ("false", "0", "none", "no")


def _values(text: str) -> list[str]:
    """``a``, ``a,b`` or ``['a', 'b']``."""
    if text[:1] in "[(":
        try:
            return [str(value) for value in ast.literal_eval(text)]
        except (ValueError, SyntaxError):
            pass
    return [value for value in text.split(",") if value]


def _pairs(arguments: Iterable[str]) -> list[tuple[str, str | None]]:
    """Flags with their values; a word that belongs to no flag stands alone."""
    pairs: list[tuple[str, str | None]] = []
    for argument in arguments:
        if argument.startswith("-"):
            name, equals, value = argument.partition("=")
            pairs.append((name.replace("_", "-"), value if equals else None))
        elif pairs and pairs[-1][0].startswith("-") and pairs[-1][1] is None:
            pairs[-1] = (pairs[-1][0], argument)
        else:
            pairs.append((argument, None))
    return pairs


def native_arguments(arguments: Iterable[str]) -> list[str]:
    """What the native program takes for the older script's arguments."""
    native: list[str] = ["serve", "proxy"]
    names = set()
    for name, value in _pairs(arguments):
        names.add(name)
        if name == "--ssl":
            native += [] if value is not None and value.lower() in _FALSE else [name]
        elif name == "--api-keys" and value is not None:
            native += [] if value == "None" else [name, ",".join(_values(value))]
        else:
            native += [name] if value is None else [name, value]
    if "--server-port" not in names:
        native += ["--server-port", _DEFAULT_PORT]
    return native


def main() -> int:
    """Becomes the program; returns only when there is none."""
    program = find_program()
    if program is None:
        print("lmdeploy.serve.proxy.proxy: the program `lmdeploy` was not found; it is installed with the package.",
              file=sys.stderr)
        return 1
    os.execv(program, ["lmdeploy", *native_arguments(sys.argv[1:])])


if __name__ == "__main__":
    sys.exit(main())
