#!/usr/bin/env bash
# Makes .venv with every dependency at the version in requirements.lock, and Headway itself.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/debian.sh

is_usable() {
    .venv/bin/python -c 'import sys, pip; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null
}

if ! is_usable; then
    python=$(scripts/find-python.sh)
    quietly "$python" -m venv --clear .venv || fail "$python could not make .venv"
fi

echo "headway: installing the pinned dependencies into .venv (some minutes the first time)" >&2
# As a variable, unlike as -c, the constraints also hold for what pip builds with.
PIP_CONSTRAINT=requirements.lock PIP_DISABLE_PIP_VERSION_CHECK=1 \
    quietly .venv/bin/python -m pip install --no-input --progress-bar off --editable '.[dev]' ||
    fail "pip failed; what it said is above"
