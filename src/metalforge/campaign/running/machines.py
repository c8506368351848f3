"""Where the chains of a campaign run: its lanes, how its graph is started there, how its producers are told to stop.

A campaign is the same wherever its producers are: as threads or processes of this machine, beside the journal
(`Machines`), or on other machines (`metalforge.cluster`).
"""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from metalforge.campaign.spec import CampaignSpec
from metalforge.pipeline import Pipeline, Run

from .lanes import ChainLane, check_room, lanes_here


class StopFlag:
    """Asked before every update. Producers in other processes see it as a file, which is there while it is set."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_set, self._elsewhere = False, False
        self.clear()

    def set(self) -> None:
        """Stop; may be called from a signal handler."""
        if not self.is_set:
            self.is_set = True
            with suppress(OSError):  # of a disk that failed, which ends the campaign anyway
                self._path.touch()

    def clear(self) -> None:
        """Go on; also removes what a process that was killed has left."""
        self._path.unlink(missing_ok=True)
        self.is_set = False

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.is_set or (self._elsewhere and self._path.exists())

    def __getstate__(self) -> Path:
        return self._path

    def __setstate__(self, path: Path) -> None:
        self._path, self.is_set, self._elsewhere = path, False, True


class Machines:
    """The silicon of this machine, with producers as threads of this process or as processes beside it."""

    carried_by = ""
    """What holds producers, where that is no thread or process beside the journal."""

    def lanes(self, spec: CampaignSpec, without: Collection[str] = ()) -> tuple[ChainLane, ...]:
        """Return the producers that a campaign has now, `without` those that were lost."""
        return lanes_here(spec, without)

    def check(self, spec: CampaignSpec, lanes: Collection[ChainLane]) -> None:
        """Raise where producers could not hold their chains."""
        check_room(spec, tuple(lanes))

    def flag(self, directory: Path) -> StopFlag:
        """Return what tells the producers of a campaign to stop."""
        return StopFlag(directory / "stop")

    def start(self, graph: Pipeline) -> Run:
        """Start the graph of a campaign, with its producers where their lanes are."""
        return graph.start()

    def grown(self) -> bool:
        """Whether there is silicon that has no lanes yet, since it came later."""
        return False

    def placed(self) -> list[tuple[str, str]]:
        """Return what happened to lanes since the last call, each with its words, for the journal."""
        return []
