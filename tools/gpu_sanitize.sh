#!/usr/bin/env bash
# Runs compute-sanitizer's four tools over a named part of the GPU tests (each kernel that waits, copies or shares memory in
# its own way, once), in up to eight parts side by side, and prints one line for each tool: the tests that passed, the parts
# without errors, what was found. Output goes to LOG.*. At most five minutes. racecheck and synccheck leave out the kernel of
# prompts, whose mbarriers and barriers of some of a block's warpgroups they do not know, and the library's; racecheck the
# tests of products by those and by wgmma, too: docs/gpu_log.md, "What compute-sanitizer says".
#   tools/gpu_sanitize.sh FOLDER [LOG]
set -u
folder=${1:?usage: tools/gpu_sanitize.sh FOLDER [LOG]}
log=${2:-$folder/../gpu_sanitize.log}
decoding='MatchesReference/cuda_bf16_*_decoding_seed1' prompt='MatchesReference/cuda_bf16_*_prompt_seed1'
filter="Tiles/AttentionTest.$decoding:Tiles/AttentionTest.$prompt:Backends/FusedTest*cuda_bf16*"
filter="$filter:FewTokens/LinearTest*cuda_bf16*:LargeIntegers/LinearTest*cuda_bf16*:Cases/RouteTest*cuda_bf16*"
filter="$filter:Cases/ExpertLinearTest.MatchesReference/cuda_bf16_*_decode:Devices/CudaRanksTest.Sums*/TwoOnOne"
shards=$(nproc)
[ "$shards" -gt 8 ] && shards=8
failed=0
for tool in memcheck initcheck racecheck synccheck; do
  known=() left_out=
  case $tool in racecheck | synccheck)
    for kernel in nvjet prompt_attention; do known+=(--kernel-name-exclude "kns=$kernel"); done
    ;;
  esac
  [ "$tool" = racecheck ] && left_out=':-FewTokens/*_17x*:FewTokens/*_32x*:FewTokens/*_33x*:FewTokens/*_64x*:LargeIntegers/*:*LinearGlu*'
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i timeout "${SECONDS_EACH:-75}" compute-sanitizer --tool "$tool" \
      "${known[@]}" "$folder/kernels_test" --gtest_filter="$filter$left_out" >"$log.$tool.$i" 2>&1 &
  done
  wait
  cat "$log.$tool".? >"$log.$tool"
  rm "$log.$tool".?
  passed=$(grep -c '^\[       OK \]' "$log.$tool")
  clean=$(grep -cE 'SUMMARY: 0 ' "$log.$tool")
  found=$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log.$tool" | grep -v 'SUMMARY: 0 ' | sed 's/^=* *//' | tr '\n' ' ')
  unfinished=$((shards - $(grep -cE 'ERROR SUMMARY|RACECHECK SUMMARY' "$log.$tool")))
  line="$tool: $passed tests passed, $clean of $shards parts without errors"
  [ "$unfinished" -eq 0 ] || line="$line, $unfinished did not end in time"
  echo "$line${found:+; $found}"
  [ "$clean" -eq "$shards" ] || failed=1
done
exit $failed
