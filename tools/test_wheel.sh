#!/bin/sh
# Build the wheel, install it into an empty environment with no compiler on the path, and run a campaign of seconds.
# Called by `make test-wheel`; leaves nothing but dist/.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
rm=$(command -v rm)
"$rm" -f dist/metalforge-*.whl
# A build folder of its own: that of the editable install would be compiled anew after every turn.
"$PYTHON" -m pip --disable-pip-version-check wheel --quiet --no-build-isolation --no-deps \
    --config-settings=build-dir=build/wheel --wheel-dir dist .
there=$(mktemp -d)
trap '"$rm" -rf "$there"' EXIT
"$PYTHON" -m venv "$there/venv"
# Nothing else is on the path: neither a compiler nor make, nor this source tree.
here=$PWD
PATH="$there/venv/bin"
export PATH
python -m pip --disable-pip-version-check install --quiet "$(echo "$here"/dist/metalforge-*.whl)"
cd "$there"
python -m metalforge --version
python -m metalforge scan --preset tiny --trajectories 600 --out tiny --json > said.json
python - <<'CHECK'
import json, metalforge, pathlib
assert "site-packages" in metalforge.__file__, metalforge.__file__
assert pathlib.Path(metalforge.__file__).with_name("py.typed").exists()
said = json.load(open("said.json"))
assert said["stopped_by"] == "trajectories" and 0 < said["trajectories"] <= 600, said
assert pathlib.Path("tiny/report.html").exists()
print("the wheel runs:", said["trajectories"], "updates")
CHECK
