#!/usr/bin/env bash
# All tests but the long ones. Those without Spark run beside the others, which wait much of the
# time; what they say is printed after that.
set -uo pipefail
cd "$(dirname "$0")/.."
java_home=$(scripts/ensure-java.sh) || exit 1
told=$(mktemp)
trap 'rm -f "$told"' EXIT

.venv/bin/pytest -m "not spark and not nightly" >"$told" 2>&1 &
beside=$!
JAVA_HOME=$java_home .venv/bin/pytest -m "spark and not nightly" --durations=20
code=$?
wait "$beside" || code=1
echo "== tests without Spark"
cat "$told"
exit "$code"
