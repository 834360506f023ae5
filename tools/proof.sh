#!/usr/bin/env bash
# The long runs, by hand: proof.sh BUILD SECONDS MODEL. 200,000 draws by each sampling rule are counted against
# exact probabilities. Each fuzz target runs for SECONDS with a fresh seed; random templates are compared with
# Python's jinja2 for as long, and tokenizers with Hugging Face's library on 100,000 texts each; then the benchmark
# workload runs under churn for as long, and the resident size must not grow.
set -eu
build=$1 seconds=$2 model=$3
seed=$(date +%s)
echo "seed $seed, $seconds s a target"
export LMDEPLOY_TEST_DRAWS=200000
"$build/src/lmdeploy/engine/engine_test" --gtest_filter='*ExactProbabilities*' --gtest_brief=1
"$build/tests/equal/equality_test" --gtest_filter='*ExactProbabilities*' --gtest_brief=1
for fuzzer in "$build"/fuzz/*_fuzz; do
  name=$(basename "$fuzzer" _fuzz)
  "$fuzzer" "fuzz/seeds/$name" --seconds "$seconds" --seed "$seed"
done
.venv/bin/python tests/python/jinja_fuzz.py --seconds "$seconds" --seed "$seed"
.venv/bin/python tests/python/tokenizer_fuzz.py --strings 100000 --seed "$seed"
.venv/bin/python tools/soak.py "$model" --seconds "$seconds" --seed "$seed"
