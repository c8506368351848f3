import pytest

from metalforge.hybrid.search import search_task


@pytest.fixture(scope="session")
def narma():
    """The task that the tests of the search share; nothing changes it."""
    return search_task("narma10")
