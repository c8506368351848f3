"""The experiment on faults runs chains through the gate of campaigns, and counts what it finds."""

from experiments import faults
from experiments.faults import QUICK, FaultTask, looked_at


def test_faults_that_stay_are_found_and_sound_chains_raise_no_alarm(monkeypatch):
    monkeypatch.setattr(faults, "FAULTS", ("lost_reunitarisation", "wrong_beta", "nan"))
    found = {one.fault: one for one in looked_at(FaultTask(case=QUICK[0], seed=1, stream=0)).found}
    assert {fault: one.by for fault, one in found.items()} == {
        "lost_reunitarisation": "unitarity",
        "wrong_beta": "witness",
        "nan": "finite",
    }
    assert found["nan"].delay <= faults.BLOCK
    assert found["wrong_beta"].delay <= faults.LONGEST
    sound = looked_at(FaultTask(case=QUICK[0], seed=1, stream=1, sound=300))
    assert (sound.updates, sound.alarms) == (300 + faults.WARMUP, 0)
