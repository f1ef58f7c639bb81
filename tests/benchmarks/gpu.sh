#!/usr/bin/env bash
# Tests and measures the CuPy back end on the GPUs of this machine: 8 minutes at most, a table at the end.
#   tests/benchmarks/gpu.sh
# Needs Python with CuPy, NVRTC and pytest (pip install 'schedlang[test,cuda13]'). Wheels that lie in tests/benchmarks/wheels
# (lark's, hypothesis') are installed first, for this run alone, so a machine without the internet will do.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
python=${PYTHON:-python3}
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
export PYTHONPATH="$PWD:$here/site${PYTHONPATH:+:$PYTHONPATH}" XDG_CACHE_HOME="$here/cache" PYTHONUNBUFFERED=1
shopt -s nullglob
wheels=(tests/benchmarks/wheels/*.whl)
[ ${#wheels[@]} -eq 0 ] || "$python" -m pip install -q --no-index --no-deps --target "$here/site" "${wheels[@]}"

missing=$("$python" -c 'from schedlang.backends.cupy import backend; print(backend.available() or "")') || exit 1
[ -z "$missing" ] || { echo "skipped: $missing"; exit 77; }
failed=0

echo "=== tests"
timeout 170 "$python" -m pytest -q -p no:cacheprovider -m gpu --maxfail=5 tests/backends/cupy/test_gpu.py || failed=1

echo "=== compute-sanitizer"
ring=examples/allreduce/ring.sched
if command -v compute-sanitizer > /dev/null; then
    for tool in memcheck synccheck racecheck; do
        for mode in kernel streams; do
            echo "--- $tool, mode $mode"
            # racecheck looks at shared memory only; flags are in global memory, which the tests on the CPU check.
            timeout 20 compute-sanitizer --tool "$tool" --error-exitcode 9 \
                "$python" -m schedlang run "$ring" --ranks 4 --backend cupy --mode "$mode" --elements 10007 --check \
                > "$here/said" 2>&1
            status=$?
            grep -E "ERROR SUMMARY|check|Error:|not supported" "$here/said"
            if grep -qiE "not supported|unsupported|Unable to" "$here/said"; then
                echo "skipped: this compute-sanitizer does not know the GPU"
            elif [ $status -eq 124 ]; then
                echo "skipped: it took longer than 20 seconds"
            elif [ $status -ne 0 ]; then
                tail -5 "$here/said"
                failed=1
            fi
        done
    done
else
    echo "skipped: compute-sanitizer is not installed"
fi

echo "=== speed"
timeout 150 "$python" tests/benchmarks/gpu.py --seconds 120 || failed=1
exit $failed
