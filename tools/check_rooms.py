#!/usr/bin/env python3
"""Fails when a file includes a header of a room that its own room may not see (docs/rooms.md, style of the house)."""
import pathlib
import re
import sys

# room -> rooms it may include besides itself. `kernels/ref`, `kernels/cpu` and `kernels/cuda` are part of kernels.
MAY_INCLUDE = {
    "core": set(),
    "http": {"core"},
    "kernels": {"core"},
    "formats": {"core"},
    "jinja": {"core"},
    "text": {"core", "formats", "jinja"},
    "parsers": {"core"},
    "hub": {"core"},
    "models": {"core", "kernels", "formats"},
    "engine": {"core", "kernels", "formats", "models"},
    "pipeline": {"core", "kernels", "formats", "text", "parsers", "hub", "models", "engine"},
    "serve": {"core", "http", "text", "parsers", "pipeline", "formats", "engine"},
    "proxy": {"core", "http"},
    "quant": {"core", "kernels", "formats", "models"},
    "bench": {"core", "kernels", "formats", "text", "parsers", "hub", "models", "engine", "pipeline", "serve", "proxy",
              "quant"},
    "cli": {"core", "http", "text", "parsers", "pipeline", "serve", "proxy", "quant", "hub", "bench"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]lmdeploy/([a-z_]+)/([^">]+)[">]', re.MULTILINE)
CUDA = re.compile(r'#\s*include\s*[<"](cuda|cublas|nccl)\w*\.h[>"]|<<<')


def errors_in(source: pathlib.Path, room: str) -> list[str]:
    text = source.read_text(encoding="utf-8")
    found = []
    for match in INCLUDE.finditer(text):
        target = match.group(1)
        line = text[: match.start()].count("\n") + 1
        if target not in MAY_INCLUDE:
            found.append(f"{source}:{line}: there is no room '{target}'")
        elif target != room and target not in MAY_INCLUDE[room]:
            found.append(f"{source}:{line}: {room}/ may not include {target}/")
    if "kernels/cuda" not in source.as_posix() and CUDA.search(text):
        found.append(f"{source}: CUDA headers and launches belong in kernels/cuda/ only")
    return found


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent / "src" / "lmdeploy"
    errors = []
    for source in sorted(root.rglob("*")):
        if source.suffix not in {".cc", ".h", ".cu", ".cuh", ".inc"}:
            continue
        room = source.relative_to(root).parts[0]
        if room not in MAY_INCLUDE:
            errors.append(f"{source}: '{room}' is not a room")
        else:
            errors += errors_in(source, room)
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
