#!/usr/bin/env bash
# The long runs, by hand: proof.sh BUILD SECONDS MODEL. 200,000 draws by each sampling rule are counted against exact
# probabilities. Each fuzz target runs for SECONDS with a fresh seed; random templates are compared with Python's jinja2 for
# as long, and tokenizers with Hugging Face's library on 100,000 texts each; then the benchmark workload runs under churn for
# as long, and the resident size must not grow. A server answers 20,000 requests, many of them broken off or malformed.
# Numbers hidden in texts of up to 128k tokens must be found, in bounded memory; at last all that serves runs under the
# sanitizers.
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
.venv/bin/python benchmark/server_load.py --model "$model" --soak 20000
passkey=$(mktemp -d)
trap 'rm -r "$passkey"' EXIT
.venv/bin/python benchmark/make_passkey_model.py "$passkey"
for length in 16384 65536 131072; do
  .venv/bin/python benchmark/passkey.py "$passkey" --session-len $length --rope-scaling-factor 2.5 --most-mib 400
done
make sanitize SUITES="http_test http_server_test serve_test serve_routes_test proxy_test proxy_black_box_test \
  proxy_registration_test engine_traffic_test"
