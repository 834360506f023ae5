#!/usr/bin/env bash
# Runs the test programs in FOLDER on a machine with a GPU and prints one line for each: its name, "ok" or "FAILED", and
# how many tests ran, were skipped and failed. The names of failed tests and their output go to FOLDER/../gpu_check.log,
# or to LOG. Tests of other back ends are left out; those that need the whole memory run alone, after the others. The
# checkpoints of tests/data/models are looked for in MODELS, then where the programs were built; tests that find none are
# skipped.
#   tools/gpu_check.sh FOLDER [LOG [MODELS]]
set -u
folder=${1:?usage: tools/gpu_check.sh FOLDER [LOG [MODELS]]}
log=${2:-$folder/../gpu_check.log}
[ $# -lt 3 ] || export LMDEPLOY_TEST_MODELS=$3
shards=$(nproc)
: >"$log"
failed=0
for program in "$folder"/*_test; do
  [ -x "$program" ] || continue
  out=$(mktemp -d)
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i timeout 240 "$program" --gtest_filter='*cuda*:*Cuda*-*CudaMemory*' >"$out/$i" 2>&1 &
  done
  wait
  timeout 240 "$program" --gtest_filter='*CudaMemory*' >"$out/$shards" 2>&1
  cat "$out"/* >>"$log"
  count() { cat "$out"/* | grep -c "$1"; }
  # A shard that ends without its last line has crashed or run out of time.
  crashed=$((shards + 1 - $(count '^\[==========\].*ran\.')))
  bad=$(count '^\[  FAILED  \].* ms)$')
  line="$(count '^\[       OK \]') passed, $(count '^\[  SKIPPED \].* ms)$') skipped, $bad failed"
  [ "$crashed" -eq 0 ] || line="$line, $crashed of $((shards + 1)) shards did not end"
  if [ "$bad" -eq 0 ] && [ "$crashed" -eq 0 ]; then
    echo "$(basename "$program"): ok, $line"
  else
    echo "$(basename "$program"): FAILED, $line"
    failed=1
  fi
  rm -rf "$out"
done
exit $failed
