#!/bin/bash
# Build the CPU's kernels, hold the card against them bit by bit, and measure, in one command on a machine with a card:
#   benchmarks/gpu/on_a_card.sh [folder for results]
# Wheels that the machine lacks may lie in wheels-cp312/. Nothing is installed.
set -u
out=${1:-${OUT:-/tmp/on_a_card}}
mkdir -p "$out" /tmp/site
for wheel in wheels-cp312/*.whl; do [ -e "$wheel" ] && python3 -m zipfile -e "$wheel" /tmp/site; done
mkdir -p /tmp/site/metalforge-0.dist-info
printf 'Metadata-Version: 2.1\nName: metalforge\nVersion: 0\n' > /tmp/site/metalforge-0.dist-info/METADATA
export PYTHONPATH=$PWD/src:/tmp/site METALFORGE_CACHE=/tmp/metalforge-cache
began=$(date +%s)
say() { echo "== $(($(date +%s) - began)) s: $*"; }
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
grep -m1 'model name' /proc/cpuinfo
headers=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')
[ -e "$headers/Python.h" ] || headers=$PWD/wheels-cp312/include/python3.12
cmake -S . -B /tmp/build -G Ninja -DPython_EXECUTABLE="$(python3 -c 'import sys; print(sys.executable)')" \
  -DPython_INCLUDE_DIR="$headers" -Dnanobind_DIR="$(python3 -m nanobind --cmake_dir)" > "$out/cmake.log" 2>&1 &&
  cmake --build /tmp/build -j 16 --target _cpu _kernels_v3 _kernels_v4 >> "$out/cmake.log" 2>&1 || tail -20 "$out/cmake.log"
cp /tmp/build/_*.so src/metalforge/native/
say "built"
python3 -c "
from metalforge import native; from metalforge.native.cuda.engine import cuda_engine
print('levels', native.available_levels()); e = cuda_engine(0); print(e.name, e.card.architecture, e.card.cache_bytes)" || exit 1
timeout 240 python3 -m pytest -m cuda tests/unit/native/test_cuda_engine.py -q --tb=short --maxfail=12 -p no:cacheprovider \
  --durations=8 -W ignore > "$out/pytest.log" 2>&1
say "tests: $(tail -1 "$out/pytest.log")"
grep -E '^(FAILED|ERROR|E  )' "$out/pytest.log" | cut -c1-220 | head -30
timeout 200 python3 benchmarks/gpu/bench_engine.py --json "$out/bench.json" 2>&1 | tee "$out/bench.log"
say "done"
