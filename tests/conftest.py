import pytest
from hypothesis import settings

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
