import gc
import os
from importlib.util import find_spec

import pytest
from hypothesis import settings

# Before NumPy is loaded, here and in every program that a test starts: files run side by side and fill the cores, where
# threads of BLAS only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from metalforge import native

# Failures must replay tomorrow: examples are derived from the test, not from the clock.
settings.register_profile("reproducible", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("reproducible")


@pytest.fixture(params=native.available_levels())
def level(request):
    """Each build level this CPU can run."""
    return request.param


@pytest.fixture
def kernels(level):
    """The compiled module of each build level."""
    return native.kernels(level)


@pytest.fixture
def undrawn(monkeypatch):
    """Reports whose figures are blank: drawing them takes seconds, and the tests of the page look at them."""
    blank = b'<svg width="100pt" height="100pt" viewBox="0 0 100 100"/>'
    monkeypatch.setattr("metalforge.campaign.report.drawing._bytes", lambda figure, kind, metadata, dpi: blank)


SLOW_FIRST = ("statistical", "experiments", "chaos", "campaign", "cli", "guards", "property")
"""Folders whose files take longest. A file stays with one process (module fixtures are made once), so a long one at the
end would leave the other process idle."""


# Until every test is found: thousands of them, and none is garbage, which would be looked at again and again.
gc.disable()


def pytest_collection_finish():
    """From here on garbage is collected, among what tests make: what was there before them stays to the end."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items):
    """Put long files first, in the order in which they are otherwise."""

    def rank(item):
        folders = set(item.path.parts)
        return next((i for i, name in enumerate(SLOW_FIRST) if name in folders), len(SLOW_FIRST))

    items.sort(key=rank)


def pytest_terminal_summary(terminalreporter, config):
    """Say once that tests on clusters were left out for want of Ray."""
    if "not cluster" in config.getoption("markexpr") and find_spec("ray") is None:
        terminalreporter.write_line("tests on clusters left out, Ray is not installed: make test-cluster")
