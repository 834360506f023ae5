#!/usr/bin/env bash
# Runs the benchmarks in whose names FILTER, a regular expression, is found: run_benchmarks.sh BUILD FILTER MODEL
set -eu
build=$1 filter=$2 model=$3
program=$build/src/lmdeploy/cli/lmdeploy
if [[ "machine" =~ $filter ]]; then
  "$program" bench machine
fi
if [ -n "$("$program" bench kernels --list 2>/dev/null | grep -E -- "$filter")" ]; then
  "$program" bench kernels --filter "$filter"
fi
if [[ "model" =~ $filter ]]; then
  for dtype in auto float32; do
    "$program" bench model "$model" --dtype "$dtype"
  done
fi
find "$build/src" -name '*_bench' -type f -executable -print0 | sort -z |
  while IFS= read -r -d '' bench; do
    echo "== $(basename "$bench")"
    "$bench" --benchmark_filter="$filter" --benchmark_min_time=0.2
  done
if [[ "tokenizer_bench" =~ $filter ]]; then
  echo "== tokenizer_bench"
  .venv/bin/python tools/tokenizer_bench.py
fi
