"""A cluster for the campaigns of a file, and the campaign that they are held against."""

import pytest

from reference.far_campaigns import STEADY, left_alone
from reference.far_nodes import cluster, nodes, told

__all__ = ["cluster", "nodes", "told", "whole"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The campaign as threads of one machine make it."""
    return left_alone(STEADY, tmp_path_factory.mktemp("whole") / "threads")
