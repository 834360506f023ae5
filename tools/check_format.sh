#!/usr/bin/env bash
# Fails when clang-format would change a file. clang-format 14 decides layout.
set -eu
formatter=$(command -v clang-format-14 || command -v clang-format || true)
if [ -z "$formatter" ]; then
  echo "clang-format is not installed: apt-get install clang-format-14" >&2
  exit 1
fi
git ls-files -z -- '*.cc' '*.h' '*.cu' '*.cuh' | xargs -0 "$formatter" --dry-run --Werror
