#!/usr/bin/env bash
# Tries an installed StreamSan whose environment has no torch: smoke.sh BIN TRACE REPORT, with the
# folder of the console script, the trace of a racy program, and the JSON report of the run that
# recorded it. Fails at the first thing that does not work.
set -euo pipefail
bin=$(cd "$1" && pwd)
trace=$(realpath "$2")
report=$(realpath "$3")
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$(mktemp -d)" # so that nothing is imported from the checkout

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$root/src/streamsan/__init__.py")
"$bin/streamsan" --version | grep -F "$version"
for verb in run check report doctor; do
    "$bin/streamsan" "$verb" --help >/dev/null
done
"$bin/python" -m streamsan --help >/dev/null
"$bin/python" -c 'import streamsan, sys; assert "torch" not in sys.modules; streamsan.watch'

# Without torch a run is refused in one sentence that names what is missing.
status=0
"$bin/streamsan" run -c pass 2>refusal || status=$?
grep -F torch refusal
if [ "$status" -ne 2 ] || grep -q Traceback refusal; then
    echo "smoke: a run without torch ended with $status" >&2
    exit 1
fi

# A trace is checked without torch, with the report that the recording run gave.
status=0
"$bin/streamsan" check --format json --output checked.json "$trace" || status=$?
if [ "$status" -ne 66 ]; then
    echo "smoke: the check of a racy trace ended with $status" >&2
    exit 1
fi
diff "$report" checked.json
echo "smoke: passed"
