#!/bin/bash
# The plasma on a card: hold it against the CPU, then measure it; four minutes, on a machine with a card and an
# environment made by
#   make install && .venv/bin/pip install -e '.[cuda]'
# Usage: benchmarks/gpu/plasma_on_a_card.sh [folder for results] [--quick]; PYTHON names another interpreter than
# .venv's.
set -u
cd "$(dirname "$0")/../.." || exit 2
python=${PYTHON:-.venv/bin/python}
out=${1:-build/plasma_on_a_card}
shift
mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
timeout 100 "$python" -m pytest -m cuda tests/unit/plasma/test_plasma_card.py -q -p no:cacheprovider > "$out/pytest.log" 2>&1
failed=$?
grep -E '^(FAILED|ERROR|E  )' "$out/pytest.log" | cut -c1-220 | head -30
tail -1 "$out/pytest.log"
timeout 170 "$python" benchmarks/gpu/bench_plasma.py --json "$out/plasma.json" "$@" 2>&1 | tee "$out/plasma.log"
exit $failed
