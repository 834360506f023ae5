"""``python -m lmdeploy`` is the native program ``lmdeploy``."""
from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

_ELF = b"\x7fELF"


def _candidates() -> Iterator[Path]:
    """Where an installation may have put the program, best first."""
    package = Path(__file__).resolve().parent
    yield Path(sysconfig.get_path("scripts")) / "lmdeploy"
    yield Path(sys.executable).parent / "lmdeploy"
    # PREFIX/lib/pythonX.Y/site-packages/lmdeploy -> PREFIX/bin
    if len(package.parents) > 3:
        yield package.parents[3] / "bin" / "lmdeploy"
    yield Path(sysconfig.get_path("scripts", "posix_user")) / "lmdeploy"


def find_program() -> Path | None:
    """The native program of this installation."""
    for path in _candidates():
        try:
            with open(path, "rb") as file:
                if file.read(4) == _ELF and os.access(path, os.X_OK):
                    return path
        except OSError:
            continue
    return None


def main() -> int:
    """Becomes the program; returns only when there is none."""
    program = find_program()
    if program is None:
        looked = ", ".join(str(path) for path in dict.fromkeys(_candidates()))
        print(f"python -m lmdeploy: the program `lmdeploy` was not found (looked for {looked}). It is installed with "
              "the package: pip install . in the repository, or make.", file=sys.stderr)
        return 1
    os.execv(program, ["lmdeploy", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
