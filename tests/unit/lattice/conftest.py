import pytest


@pytest.fixture
def isa(level, monkeypatch):
    """The test runs once a build level."""
    monkeypatch.setenv("METALFORGE_ISA", level)
    return level
