"""A campaign from a spec to its numbers, and back from its directory: what `from metalforge import campaign` gives.

found = run("tiny", "DIR")           a preset, a file or a spec; without a directory nothing is kept
found.value, found.error, found.established
again = load("DIR")                  in another process, or years later: the same digits
again.rows["c0000"]["energy"]        every update of a chain, as NumPy arrays
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metalforge.core import MetalforgeError, PathLike

from .analysis.evidence import Evidence
from .extending import Extension
from .report.decisions import ResultPart
from .report.heads import NOTE, HeadAccount, Otherwise, accounts_of, otherwise
from .report.page import notebook_html, write_report
from .report.result import CampaignSummary, Reported, summary_of
from .report.words import system_name
from .running.campaign import Campaign
from .spec import PRESETS, CampaignSpec, load_spec, preset
from .state import CampaignState, Fold
from .store.directory import JOURNAL
from .store.reading import read_journal
from .store.records import StoppedBy

if TYPE_CHECKING:  # loaded where it is asked for
    from .replanning import Counterfactual


class WithoutHeads(ResultPart, frozen=True, kw_only=True):
    """What `replay --without heads --json` prints; outcomes of decisions that differ are modelled, see `note`."""

    heads: dict[str, HeadAccount]
    decisions: tuple[Otherwise, ...]
    different: int
    note: str = NOTE


class Results(Reported):
    """What a campaign has found, finished or not: numbers with their evidence, and every row. Printing it says so."""

    def __init__(self, state: CampaignState, directory: Path | None = None) -> None:
        super().__init__(state)
        self.directory = directory
        """Where the campaign is; None where nothing was kept."""

    def __str__(self) -> str:
        return "\n".join(self.spec.theory.report.lines(self.result))

    def __repr__(self) -> str:
        """Return one line: the verdict, and where the campaign is."""
        where = "" if self.directory is None else f" in {self.directory}"
        return (
            f"<Results of {self.spec.name}{where}: {next(self.spec.theory.report.lines(self.result), 'nothing yet')}>"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: verdict, transition and evidence."""
        return notebook_html(self)

    @property
    def said(self) -> list[str]:
        """What a campaign says when it is over: its verdict, what is published, how it ended, where the report is."""
        summary = self.summary
        ended = "not finished" if summary.stopped_by is None else f"stopped by {summary.stopped_by}"
        lines = [str(self), self.spec.theory.report.comparison(self.spec, self.result)]
        lines.append(f"{summary.trajectories} updates in {summary.seconds:.1f} s, {ended}")
        lines.append("" if summary.report is None else f"report: {summary.report}")
        return [line for line in lines if line]

    @property
    def summary(self) -> CampaignSummary:
        """The few numbers that a script wants: what `metalforge scan --json` prints."""
        page = None if self.directory is None else self.directory / "report.html"
        return summary_of(self.state, self.result, page if page is not None and page.exists() else None)

    @property
    def value(self) -> float | None:
        """What is quoted: of the infinite system where there are systems enough, else of the first one."""
        return self.summary.result.value

    @property
    def error(self) -> float | None:
        """Its statistical error; None where no peak was located."""
        return self.summary.result.error

    @property
    def established(self) -> bool:
        """Whether all of the evidence holds, so that the number may be quoted."""
        return self.summary.result.established

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """What the number rests on: every item with what was needed and what was found."""
        return self.summary.evidence

    @property
    def reason(self) -> str | None:
        """What is lacking; None where nothing is."""
        return self.summary.result.reason

    @property
    def stopped_by(self) -> StoppedBy | None:
        """What ended it; None for a campaign that was interrupted, or still runs."""
        return self.state.stopped_by

    @cached_property
    def rows(self) -> Mapping[str, Mapping[str, NDArray[Any]]]:
        """Every update of every chain, warm-up too: by chain, then by column, with `update` and `phase` first."""
        return {
            name: {"update": np.arange(log.rows), "phase": np.array(log.phases)}
            | {column: values.array() for column, values in log.columns.items()}
            for name, log in self.state.chains.items()
        }

    def frame(self) -> Any:
        """Return all rows as one pandas DataFrame, with chain, system, coordinate and start; needs pandas."""
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise MetalforgeError(
                "`frame` needs pandas, which is not installed; `rows` has the same numbers as NumPy arrays"
                "\nhint: pip install pandas"
            ) from None
        about = {
            name: {"chain": name, "system": system_name(log.system), "coordinate": log.coordinate, "start": log.start}
            for name, log in self.state.chains.items()
        }
        parts = [pandas.DataFrame({**about[name], **columns}) for name, columns in self.rows.items()]
        return pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame()

    def without_heads(self) -> "WithoutHeads":
        """Return every decision that heads took part in beside what the baselines alone would have decided."""
        found = otherwise(self.state)
        return WithoutHeads(
            heads=accounts_of(self.state), decisions=tuple(found), different=sum(e.differs for e in found)
        )

    def steered_by(self, steerer: str, at: int = 1) -> "Counterfactual":
        """Return what another steerer would have done from record `at` of the journal on; outcomes are modelled."""
        if self.directory is None:
            raise MetalforgeError("this campaign was kept nowhere, and visits are planned again from its journal")
        from .replanning import counterfactual

        return counterfactual(self.directory / JOURNAL, at, None, steerer)

    def report(self, directory: PathLike | None = None, *, beside: Sequence["Results"] = ()) -> Path:
        """Write the report, one HTML page with its figures and tables, and return its path.

        `beside` are campaigns to compare it with, in one figure and one table.
        """
        target = self.directory if directory is None else Path(directory)
        if target is None:
            raise MetalforgeError("this campaign was kept nowhere\nhint: say where the report goes: report(DIR)")
        target.mkdir(parents=True, exist_ok=True)
        return write_report(self, target, beside)


def spec_of(wanted: CampaignSpec | PathLike) -> CampaignSpec:
    """Return a spec as it is, that of a preset's name, or that of a TOML file."""
    if isinstance(wanted, CampaignSpec):
        return wanted
    # Whatever cannot be a file is taken for a preset, so that a typo lists the presets there are.
    if isinstance(wanted, str) and (wanted in PRESETS or not (wanted.endswith(".toml") or Path(wanted).exists())):
        return preset(wanted)
    return load_spec(Path(wanted))


def run(spec: CampaignSpec | PathLike, directory: PathLike | None = None) -> Results:
    """Run a campaign to its end: a spec, a TOML file or a preset's name, in a new directory or in none."""
    wanted = spec_of(spec)
    if directory is None:
        with TemporaryDirectory(prefix="metalforge-") as folder:
            return Results(run(wanted, folder).state)
    with Campaign.open(wanted, Path(directory)) as campaign:
        return Results(campaign.run(), campaign.directory)


def resume(directory: PathLike, more: Extension | None = None) -> Results:
    """Go on with a campaign that was interrupted or killed, or with `more` extend one; run it to its end."""
    with Campaign.resume(Path(directory), more=more) as campaign:
        return Results(campaign.run(), campaign.directory)


def load(directory: PathLike) -> Results:
    """Return what the campaign of a directory has found, from its journal alone; it may still run."""
    folding = Fold(Path(directory))
    read_journal(Path(directory) / JOURNAL, folding)
    return Results(folding.state, Path(directory))
