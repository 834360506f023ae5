#!/usr/bin/env bash
# Installs the Debian packages that building and testing need. Does nothing when all are there; uses sudo when not root.
set -eu

packages=(
  g++ cmake ninja-build ccache pkg-config git unzip ca-certificates
  libboost1.81-dev libspdlog-dev libfmt-dev libcli11-dev libpcre2-dev libutf8proc-dev libedit-dev zlib1g-dev
  libcurl4-openssl-dev libssl-dev
  libgtest-dev libbenchmark-dev clang-format-14
  python3 python3-dev python3-venv
  chromium fonts-dejavu-core
)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "These packages (Debian names) are missing and there is no apt-get to install them: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Not root and no sudo. Ask an administrator to run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "Installing Debian packages: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
