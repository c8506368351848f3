"""Whatever is killed of a cluster and whenever: campaigns end with the rows of one machine, none twice."""

import pytest

from reference.far_campaigns import left_alone

from . import ledger
from .cluster_kills import SPEC, attack

pytestmark = [pytest.mark.cluster, pytest.mark.long]

SEEDS, KILLS = 25, 8


@pytest.fixture(scope="module")
def whole(arena):
    return left_alone(SPEC, arena / "whole")


def test_two_hundred_kills_in_parts(whole, tmp_path):
    # Not in memory: files of several nodes are there at once, and Ray's own.
    def one(seed):
        struck = attack(seed, KILLS, tmp_path, whole)
        return ledger.counted(struck.strikes), list(struck.faults)

    assert ledger.add_up("cluster-kills", range(SEEDS), one) == []
