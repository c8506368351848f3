"""Campaigns that run in a thread of the test until they are told to stop, and whoever commands them."""

import threading
from contextlib import contextmanager

import msgspec

from metalforge.campaign.calling import command
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget
from reference.small_campaigns import QUICK

LONG = msgspec.structs.replace(QUICK, name="long", budget=Budget(trajectories=1_000_000))
"""It runs until it is told to stop."""


class Running:
    """A campaign that runs in a thread."""

    def __init__(self, campaign):
        self.campaign, self.directory = campaign, campaign.directory
        self._news, write = threading.Condition(), campaign.book.write

        def writing(*records):
            write(*records)
            with self._news:
                self._news.notify_all()

        campaign.book.write = writing
        self.thread = threading.Thread(target=campaign.run)
        self.thread.start()

    @property
    def state(self):
        return self.campaign.state

    def until(self, true):
        """Wait until something is true of the state."""
        with self._news:
            assert self._news.wait_for(lambda: true(self.state), 60)

    def command(self, what, **asked):
        return command(self.directory, what, **asked)


@contextmanager
def running(directory, spec=LONG, updates=60):
    """Give a campaign that has made so many updates; it is interrupted at the end."""
    with Campaign.open(spec, directory) as campaign:
        one = Running(campaign)
        try:
            one.until(lambda state: state.trajectories >= updates)
            yield one
        finally:
            campaign.interrupt("test")
            one.thread.join()
