"""What commands do to a campaign that runs. All of it happens in its main loop, which alone writes.

=============================  =====================================================================================
`pause`, `resume`              the graph ends as at an interruption, with every chain in its file, and begins again;
                               meanwhile nothing is computed, and no budget of seconds is spent
`stop`                         as Ctrl-C: interrupted, and to be resumed
`extend`, `system`, `steerer`  as `metalforge resume` with the same options: the graph ends in the same way and begins
`coupling`, `remove`           again with another spec. Visits that were decided are completed as they were
`rewire`                       the screen leaves the way of the blocks, comes back, or is left to its rule again
=============================  =====================================================================================

A chain that measures is never changed: it is stopped between two updates and goes on where it was. Who resumes a
campaign that was killed while it paused wants it to go on, and it does; one that comes back by itself stays paused.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from metalforge.campaign.extending import extended
from metalforge.campaign.report.words import budget_text, one_line
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.records import Commanded, Decided, Sampled
from metalforge.core import MetalforgeError, SpecError

from .listening import CommandSocket, WaitingCommand
from .sampling import SAMPLE_S

if TYPE_CHECKING:
    from .campaign import Campaign

LOOK_S = 0.05
"""Between two looks at a campaign that pauses."""


class Controls:
    """Takes the commands for one campaign and carries them out."""

    def __init__(self, campaign: "Campaign") -> None:
        self._campaign = campaign
        self._socket: CommandSocket | None = None
        self._turning: WaitingCommand | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take commands in this block; a place that can have no socket runs its campaign all the same."""
        try:
            opened = CommandSocket(self._campaign.directory)
        except OSError as error:
            self._campaign.book.write(Decided(what="controls", by="socket", reason=f"no commands are taken: {error}"))
            yield
            return
        with opened as self._socket:
            try:
                yield
            finally:
                if self._turning is not None:
                    self._turning.answer(False, "the campaign ended")

    @property
    def turning(self) -> bool:
        """Whether the graph is to end, so that a command can be carried out."""
        return self._turning is not None

    def look(self) -> None:
        """Take what was asked; a command that must wait for a border is the last until that comes."""
        while (waiting := self._next()) is not None:
            self._hear(waiting)

    def turn(self) -> bool:
        """Do what the graph has ended for; return whether it is to begin again."""
        waiting, self._turning = self._turning, None
        if waiting is None:
            return False
        if self._campaign.halted:
            self._say(waiting, False, "the campaign was stopped before")
        elif waiting.command.what == "pause":
            self._say(waiting, True, "paused")
            self._pause()
        else:
            self._change(waiting)
        return not self._campaign.halted

    def stay_paused(self) -> None:
        """Go on pausing in a process that nobody has asked to go on."""
        if self._socket is not None:
            reason = "it was paused when the process before this one ended"
            self._campaign.book.write(Commanded(by="supervisor", what="pause", accepted=True, reason=reason))
            self._pause()

    def _next(self) -> WaitingCommand | None:
        if self._socket is None:
            return None
        return self._socket.take(only=("stop",) if self.turning else ())

    def _pause(self) -> None:
        campaign, book, due = self._campaign, self._campaign.book, 0.0
        while campaign.state.pause is not None and not campaign.halted and self._socket is not None:
            if (now := time.monotonic()) >= due:
                due = now + SAMPLE_S
                book.write(Sampled(window_s=0.0, stages=(), paused=True))
            book.journal.tick()
            self._socket.news.wait(LOOK_S)
            self.look()

    def _hear(self, waiting: WaitingCommand) -> None:
        """Carry out what can be now, refuse what cannot, and let the graph end for the rest."""
        paused, campaign = self._campaign.state.pause is not None, self._campaign
        try:
            match waiting.command.what:
                case "stop":
                    self._say(waiting, True, "stops at the next update; metalforge resume goes on")
                    campaign.interrupt(f"stopped by {waiting.by}")
                case "resume" if paused:
                    self._say(waiting, True, "goes on")
                case "pause" | "resume" as what:
                    if paused or what == "resume":
                        self._say(waiting, False, "it is paused already" if paused else "it is not paused")
                    else:
                        self._turning = waiting
                case "rewire":
                    self._rewire(waiting)
                case _ if paused:
                    self._change(waiting)
                case _:
                    self._wanted(waiting)
                    self._turning = waiting
        except MetalforgeError as error:
            self._say(waiting, False, one_line(str(error)))

    def _rewire(self, waiting: WaitingCommand) -> None:
        wanted, campaign = waiting.command.screen, self._campaign
        if campaign.spec.running.deterministic:
            self._say(
                waiting, False, "a deterministic campaign keeps its graph: what a screen misses goes by the clock"
            )
        elif campaign.rule is None:
            self._say(waiting, False, f"ordering {campaign.state.ordering} has no screen")
        else:
            said = {"before": "is in the way of the blocks", "beside": "is beside it", "auto": "is left to its rule"}
            self._say(waiting, True, f"the screen {said[wanted]} from the next border on")

    def _wanted(self, waiting: WaitingCommand) -> CampaignSpec:
        """Return the spec that a command asks for; raises where it cannot be."""
        spec = extended(self._campaign.state, waiting.command.extension)
        if spec == self._campaign.spec:
            raise SpecError("the campaign is so already")
        return spec

    def _change(self, waiting: WaitingCommand) -> None:
        """Take another spec: what was decided stays, what is decided from here on goes by it."""
        try:
            self._campaign.change(self._wanted(waiting), _record(waiting))
        except MetalforgeError as error:
            self._say(waiting, False, one_line(str(error)))
        else:
            extends = waiting.command.what == "extend"
            waiting.answer(True, f"now ends at {budget_text(self._campaign.spec)}" if extends else "in force")

    def _say(self, waiting: WaitingCommand, accepted: bool, said: str) -> None:
        """Write what was asked and said, then say it."""
        self._campaign.book.write(_record(waiting, accepted=accepted, reason="" if accepted else said))
        waiting.answer(accepted, said)


def _record(waiting: WaitingCommand, *, accepted: bool = True, reason: str = "") -> Commanded:
    command = waiting.command
    return Commanded(by=waiting.by, what=command.what, asked=command.asked, accepted=accepted, reason=reason)
