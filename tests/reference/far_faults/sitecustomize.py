"""Faults of single nodes of a cluster on this machine, for tests: Python imports this where PYTHONPATH leads to it.

METALFORGE_TEST_FAULTS names a file that says which node has which, as ``{"2": ["dies"]}``; it is read by every worker
when it starts. The package itself has no such switches. Reports are not drawn, which would take most of the time.
"""

import importlib.abc
import importlib.util
import json
import os
import resource
import sys
import time
from pathlib import Path


def _undrawn(module):
    blank = b'<svg width="100pt" height="100pt" viewBox="0 0 100 100"/>'
    module._bytes = lambda figure, kind, metadata, dpi: blank


def _node():
    return os.environ.get("METALFORGE_LOCAL_CLUSTER", "").rpartition(":")[2]


def _spoiled(module):
    told = os.environ.get("METALFORGE_TEST_FAULTS", "")
    faults = json.loads(Path(told).read_text()) if told and Path(told).exists() else {}
    for fault in faults.get(_node(), ()):
        _FAULTS[fault](module)


def _dies(module):
    """The worker ends whenever a chain should move."""
    do = module.NodeWorker.do

    def dying(self, lane, verb, arguments):
        if verb == "step":
            os._exit(1)
        return do(self, lane, verb, arguments)

    module.NodeWorker.do = dying


def _nan(module):
    """Now and then an update of a chain starts from a link that is not a number."""
    tests = Path(__file__).resolve().parents[2]
    sys.path += [str(tests), str(tests.parent)]
    from reference.spoiled_chains import faults_at

    spoiling = faults_at({(stream, step): "nan" for stream in range(12) for step in range(7 + stream, 400, 29)})
    spoiling.__enter__()
    module.spoiling = spoiling  # or it would end


def _full(module):
    """No file of the worker's can have more than a few bytes: writing ends as on a full disk."""
    begin = module.NodeWorker.__init__

    def beginning(self, directory):
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        begin(self, directory)

    module.NodeWorker.__init__ = beginning


def _clock(module):
    """The clock is a day ahead, and goes twice as fast."""
    now, began = time.time, time.time()
    time.time = lambda: began + 86_400.0 + 2.0 * (now() - began)


_FAULTS = {"dies": _dies, "nan": _nan, "full": _full, "clock": _clock}
_CHANGED = {"metalforge.campaign.report.drawing": _undrawn, "metalforge.cluster.worker": _spoiled}


class _Changing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Changes modules when they have been imported."""

    def find_spec(self, name, path=None, target=None):
        if name not in _CHANGED:
            return None
        sys.meta_path.remove(self)
        try:
            found = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        execute, change = found.loader.exec_module, _CHANGED[name]

        def executing(module):
            execute(module)
            change(module)

        found.loader.exec_module = executing
        return found


sys.meta_path.insert(0, _Changing())
