#!/usr/bin/env bash
# Renews requirements.lock: installs '.[dev]' into an empty environment and writes down every version.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/debian.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=$(scripts/find-python.sh)
quietly "$python" -m venv "$folder/venv"

# What builds Headway and PySpark (which has no wheel) is pinned too, although it stays out of .venv.
build=$("$python" -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')
# shellcheck disable=SC2086
quietly "$folder/venv/bin/pip" install --no-input --upgrade '.[dev]' $build editables setuptools wheel

{
    echo "# Every version that make install uses, pinned. Written by scripts/lock.sh:"
    echo "# run it after a change of the dependencies in pyproject.toml, then make test."
    "$folder/venv/bin/pip" freeze --all --exclude headway --exclude pip
} >"$folder/lock"
if grep --quiet ' @ \|^-' "$folder/lock"; then
    fail "the lock would name files or addresses: $(grep ' @ \|^-' "$folder/lock" | head -n 1)"
fi
cp "$folder/lock" requirements.lock
