#!/usr/bin/env bash
# Takes Swagger UI and ReDoc from the Python package that carries their release files, packs them, and puts them with
# their licences where the build embeds them. Needed only to move to another version:
#   tools/get_api_pages.sh VERSION     (of drf-spectacular-sidecar)
set -eu
[ $# -eq 1 ] || { echo "usage: $0 VERSION" >&2; exit 2; }
cd "$(dirname "$0")/.."
target=src/lmdeploy/serve/pages/third_party
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$work" "drf-spectacular-sidecar==$1"
unzip -q "$work"/*.whl -d "$work"
from=$work/drf_spectacular_sidecar/static/drf_spectacular_sidecar

# ReDoc shows a logo of its makers from the network; without it only its alternative text is missing.
sed -i 's|https://cdn.redoc.ly/redoc/logo-mini.svg|data:,|' "$from/redoc/bundles/redoc.standalone.js"

pack() {  # pack FILE: the same bytes on every machine
  gzip --best --no-name --stdout "$from/$1" >"$target/$(basename "$1").gz"
}
pack swagger-ui-dist/swagger-ui-bundle.js
pack swagger-ui-dist/swagger-ui.css
pack redoc/bundles/redoc.standalone.js
cp "$from/swagger-ui-dist/LICENSE" "$target/swagger-ui.LICENSE.txt"
cp "$from/redoc/LICENSE" "$target/redoc.LICENSE.txt"
cp "$from/redoc/bundles/redoc.standalone.js.LICENSE.txt" "$target/redoc.standalone.js.LICENSE.txt"
ls -l "$target"
