#!/bin/sh
# Shows StreamSan on a training script with a missing wait, then on the repaired script.
# Succeeds when the first run ends with 66 (races found) and the second with 0 (clean).
set -u
cd "$(dirname "$0")/.."
begin=$(date +%s)
export OMP_NUM_THREADS=1 # enough for so small a model, and steady on a busy machine

# step WANTED COMMAND...: shows and runs the command; ends the demo unless it exits with WANTED.
step() {
    wanted=$1
    shift
    printf '\n$ %s\n' "$*"
    "$@"
    status=$?
    if [ "$status" -ne "$wanted" ]; then
        echo "demo: exit status $status where $wanted was expected" >&2
        exit 1
    fi
    echo "exit status $status, as expected"
}

step 66 streamsan run --device virtual examples/vit_train.py --racy
step 0 streamsan run --device virtual examples/vit_train.py
printf '\ndemo: %s s\n' "$(($(date +%s) - begin))"
