#!/bin/bash
# Hold a card against the CPU bit by bit, then measure it; minutes, on a machine with a card and an environment made by
#   make install && .venv/bin/pip install -e '.[cuda]'
# Usage: benchmarks/gpu/on_a_card.sh [folder for results]; PYTHON names another interpreter than .venv's.
set -u
cd "$(dirname "$0")/../.." || exit 2
python=${PYTHON:-.venv/bin/python}
out=${1:-build/on_a_card}
mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
"$python" -c "
from metalforge import native; from metalforge.native.cuda.engine import cuda_engine
engine = cuda_engine(0)
print('CPU levels', *native.available_levels(), 'against', engine.name, engine.card.architecture)" || exit 1
"$python" -m pytest -m cuda tests/unit/native tests/unit/campaign/test_cuda_campaigns.py tests/statistical/test_card.py -q -p no:cacheprovider > "$out/pytest.log" 2>&1
failed=$?
grep -E '^(FAILED|ERROR|E  )' "$out/pytest.log" | cut -c1-220 | head -30
tail -1 "$out/pytest.log"
"$python" benchmarks/gpu/bench_engine.py --json "$out/bench.json" 2>&1 | tee "$out/bench.log"
exit $failed
