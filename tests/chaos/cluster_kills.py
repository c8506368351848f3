"""Campaigns on a cluster of three nodes of which anything is killed at any moment; each must end as one machine's."""

import os
import random
import signal
from pathlib import Path

from metalforge.campaign.running.campaign import JOURNAL
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.reading import JournalFollower
from metalforge.campaign.store.records import Rows
from metalforge.cluster.local import ClusterFolder, LocalClusterError
from metalforge.cluster.marked import kill_all, raylets, wait_until
from reference.far_campaigns import LATE_S, STEADY, SUPERVISOR, WORKER, FarCampaign, longer
from reference.struck_nodes import kill_node

from .kills import Struck

SPEC = longer(STEADY, 6000)
VICTIMS = ("worker",) * 4 + ("raylet", "node", "supervisor", "supervisor", "driver", "driver", "stopped", "head")
"""What is struck: a worker's process, a raylet alone, all of a node, the supervisor, the process of the terminal, a
terminal that is told to stop (SIGTERM), the head with its keeper and all else."""


BACK_S = 20.0
"""That a supervisor which was killed a moment ago takes to come back: where none does there is none."""


class Attack:
    """One campaign under so many strikes, drawn from a seed."""

    def __init__(self, seed: int, kills: int, folder: Path) -> None:
        self._rng = random.Random(f"cluster {seed}")
        self._far = FarCampaign(folder, SPEC, "local:3x1")
        updates = SPEC.budget.trajectories or 0
        self._plan = sorted((self._rng.randrange(updates), self._rng.choice(VICTIMS)) for _ in range(kills))
        self._driver = self._far.scan()
        self._follower = JournalFollower(self._far.directory / JOURNAL)
        self._updates = 0
        self.strikes: list[str] = []
        self.faults: list[str] = []

    def run(self, whole: CampaignState) -> None:
        """Strike until the plan or the campaign is at its end, and compare."""
        try:
            for updates, victim in self._plan:
                if self._passed(updates):
                    break
                if self._strike(victim):
                    self.strikes.append(victim)
            code = self._far.ended(self._driver)
            if code:
                self.faults.append(f"exit code {code} after {self.strikes[-3:]}: {self._far.said[-1500:]}")
            else:
                self.faults += self._far.faults(whole)
        finally:
            self._driver.kill()
            self._driver.wait()
            if (left := self._far.cluster) is not None:
                left.stop()
                self.faults += [] if self.faults else ["a cluster was left behind"]

    def _passed(self, updates: int) -> bool:
        """Wait until the journal has so many updates; return whether the campaign is over instead."""

        def there() -> bool:
            for record in self._follower.poll():
                if isinstance(record, Rows):
                    self._updates += len(record.columns["plaquette"])
            return self._updates >= updates or self._driver.poll() is not None

        if not wait_until(there, LATE_S):
            self.faults.append(f"nothing happened for {LATE_S:g} s after {self.strikes[-3:]}: {self._far.said[-1500:]}")
            return True
        return self._driver.poll() is not None

    def _strike(self, victim: str) -> bool:
        """Strike, and do what whoever watches would do then; return whether there was something to strike."""
        if victim in ("driver", "stopped"):
            self._driver.send_signal(signal.SIGKILL if victim == "driver" else signal.SIGTERM)
            code = self._far.ended(self._driver)
            return self._go_on(code)
        cluster = self._far.cluster
        if cluster is None or not cluster.nodes():
            return False
        try:
            if victim == "head":
                place = ClusterFolder.of(cluster.folder)
                os.kill(cluster.keeper, signal.SIGKILL)
                if place is not None:
                    kill_all(f"{place.cluster}:")
                return self._go_on(self._far.ended(self._driver))
            if victim in ("raylet", "node"):
                number = self._rng.choice([node.number for node in cluster.nodes() if node.number])
                mark = f"{ClusterFolder.of(cluster.folder).cluster}:{number}"
                if victim == "node":
                    kill_node(cluster, number)
                else:
                    os.kill(raylets(mark)[0], signal.SIGKILL)
                    wait_until(lambda: all(node.number != number for node in cluster.nodes()), LATE_S)
                cluster.add_node(1)
                return True
            found = self._far.processes(WORKER if victim == "worker" else SUPERVISOR)
            if found:
                os.kill(self._rng.choice(sorted(found)), signal.SIGKILL)
            return bool(found)
        except (ProcessLookupError, IndexError, LocalClusterError):
            return False  # it has ended by itself meanwhile, and the cluster with the campaign

    def _go_on(self, code: int) -> bool:
        """Come back to the campaign, or go on with it where nobody runs it; return whether it was struck at all."""
        if code == 0:
            return False
        there = self._far.cluster
        if there is not None and there.nodes() and wait_until(lambda: bool(self._far.processes(SUPERVISOR)), BACK_S):
            self._driver = self._far.attach()
            return True
        begun = (self._far.directory / JOURNAL).exists() and b"\n" in (self._far.directory / JOURNAL).read_bytes()
        self._driver = self._far.resume() if begun else self._far.scan()
        return True


def attack(seed: int, kills: int, folder: Path, whole: CampaignState) -> Struck:
    """Strike campaigns so many times in all; where one ends before that, begin another."""
    strikes: list[str] = []
    faults: list[str] = []
    for again in range(kills):
        place = folder / f"{seed}-{again}"
        place.mkdir()
        one = Attack(1000 * seed + again, kills - len(strikes), place)
        one.run(whole)
        strikes, faults = strikes + one.strikes, faults + one.faults
        if len(strikes) >= kills or faults:
            break
    return Struck(campaign=SPEC.name, seed=seed, strikes=tuple(strikes), faults=tuple(faults))
