#!/usr/bin/env bash
# Runs compute-sanitizer's four tools over a named part of the GPU tests (each kernel that waits, copies or shares memory in
# its own way, once) and prints one line for each tool: its name, the tests that passed, its errors. Output goes to LOG.*.
# About five minutes. racecheck and synccheck leave out the kernel of prompts, whose mbarriers and barriers of some of a
# block's warpgroups they do not know, and the library's kernels: docs/gpu_log.md, "What compute-sanitizer says".
#   tools/gpu_sanitize.sh FOLDER [LOG]
set -u
folder=${1:?usage: tools/gpu_sanitize.sh FOLDER [LOG]}
log=${2:-$folder/../gpu_sanitize.log}
decoding='MatchesReference/cuda_bf16_*_decoding_seed1' prompt='MatchesReference/cuda_bf16_*_prompt_seed1'
filter="Tiles/AttentionTest.$decoding:Tiles/AttentionTest.$prompt:Backends/FusedTest*cuda_bf16*"
filter="$filter:FewTokens/LinearTest*cuda_bf16*:LargeIntegers/LinearTest*cuda_bf16*:Cases/RouteTest*cuda_bf16*"
failed=0
for tool in memcheck initcheck racecheck synccheck; do
  known=()
  case $tool in racecheck | synccheck) known=(--kernel-regex-exclude kns=nvjet --kernel-regex-exclude kns=prompt_attention) ;; esac
  timeout "${SECONDS_EACH:-75}" compute-sanitizer --tool "$tool" "${known[@]}" "$folder/kernels_test" \
    --gtest_filter="$filter" >"$log.$tool" 2>&1
  code=$?
  passed=$(grep -c '^\[       OK \]' "$log.$tool")
  summary=$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log.$tool" | tail -1 | sed 's/^=* *//')
  [ "$code" -eq 124 ] && summary="did not end in time"
  echo "$tool: $passed tests passed, ${summary:-exit code $code, no summary}"
  [ "$code" -eq 0 ] && grep -qE 'SUMMARY: 0 ' "$log.$tool" || failed=1
done
exit $failed
