"""One happy path a room, under two seconds: what runs before each commit."""

from metalforge import native, substrates


def test_native():
    assert all(check.passed for check in native.selftest())


def test_substrates():
    found = substrates.discover()
    decision = substrates.route(substrates.workload("cpu_validation"), found.substrates)
    assert decision.substrate.name == "cpu:0"
