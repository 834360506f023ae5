"""Writes files into a C++ source: embed_files.py OUTPUT FILE...

Each becomes gzip bytes with its size and a hash of its text. NAME.gz is embedded as it is, under NAME.
"""
import gzip
import hashlib
import pathlib
import sys

HEAD = """// Made by cmake/embed_files.py.
#include "lmdeploy/serve/embedded_file.h"

namespace lmdeploy {

std::span<const EmbeddedFile> embedded_files() {
  static constexpr EmbeddedFile kFiles[] = {
"""
TAIL = """  };
  return kFiles;
}

}  // namespace lmdeploy
"""


def packed(path: pathlib.Path) -> tuple[str, bytes, bytes]:
    """(name, text, gzip)"""
    data = path.read_bytes()
    if path.suffix == ".gz":
        return path.stem, gzip.decompress(data), data
    return path.name, data, gzip.compress(data, 9, mtime=0)


def literal(data: bytes) -> str:
    return "\n".join('"' + "".join(f"\\{byte:03o}" for byte in data[i:i + 64]) + '"' for i in range(0, len(data), 64))


def entry(path: pathlib.Path) -> str:
    name, text, compressed = packed(path)
    digest = hashlib.sha256(text).hexdigest()[:16]
    return f'{{"{name}", {len(text)}, "{digest}", std::string_view({literal(compressed)}, {len(compressed)})}},\n'


def main() -> None:
    output, *files = map(pathlib.Path, sys.argv[1:])
    output.write_text(HEAD + "".join(map(entry, files)) + TAIL)


if __name__ == "__main__":
    main()
