#!/usr/bin/env bash
# `pip install .` in an environment of its own gives a working package and program.
set -eu
python=.venv/bin/python
venv=build/wheel-venv
rm -rf "$venv" build/wheel-dist
$python -m pip wheel --quiet --disable-pip-version-check --no-deps -w build/wheel-dist .
$python -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check build/wheel-dist/*.whl
cd build  # not the source folder
wheel-venv/bin/lmdeploy --version
wheel-venv/bin/python -m lmdeploy --version
wheel-venv/bin/python -c "import lmdeploy; print('import', lmdeploy.__version__)"
if ldd wheel-venv/bin/lmdeploy | grep -i python; then
  echo "the program links Python" >&2
  exit 1
fi
