#!/usr/bin/env bash
# Runs the benchmarks whose name contains FILTER: run_benchmarks.sh BUILD FILTER MODEL
set -eu
build=$1 filter=$2 model=$3
find "$build/src" -name '*_bench' -type f -executable -not -name pipeline_bench -print0 | sort -z |
  while IFS= read -r -d '' bench; do
    echo "== $(basename "$bench")"
    "$bench" --benchmark_filter="$filter" --benchmark_min_time=0.2
  done
if [[ "pipeline_bench" =~ $filter ]]; then
  for dtype in auto float32; do
    echo "== pipeline_bench $dtype"
    "$build/src/lmdeploy/bench/pipeline_bench" "$model" 64 "$dtype"
  done
fi
if [[ "tokenizer_bench" =~ $filter ]]; then
  echo "== tokenizer_bench"
  .venv/bin/python tools/tokenizer_bench.py
fi
