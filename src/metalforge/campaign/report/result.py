"""What a campaign found, derived again from its journal alone: the numbers of the report, `replay` and `--json`.

A pure function of the state: no clock, and the bootstrap's seed is the spec's. So the end of a scan, a replay and a
report written next year give the same digits.

Errors of the order parameter and its chi are those of the evidence, from all chains together (`chain_errors`): tau_int
and variance of a short chain alone are too small. Other observables have Gamma-method errors.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from metalforge.campaign.analysis.evidence import NOT_APPLICABLE, Evidence, Finding
from metalforge.campaign.analysis.transition import ChainErrors, Transition, chain_errors
from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.directory import JOURNAL
from metalforge.campaign.store.records import EnergySpent, StoppedBy
from metalforge.campaign.theory import System, Theory
from metalforge.core import MetalforgeError, PathLike
from metalforge.statistics import Estimate, Value, gamma_method, susceptibility, value_of

from .decisions import NOTE, HeadAccount, ResultPart, accounts_of, faults_of, otherwise
from .downloads import curves_of
from .words import item_text, system_name

if TYPE_CHECKING:  # loaded where it is asked for
    from metalforge.campaign.analysis.curve import TransitionCurve
    from metalforge.campaign.analysis.finite_size import FiniteSize, FiniteSizeFit
    from metalforge.campaign.replanning import Counterfactual

FEWEST_ROWS = 20
"""Rows below which nothing is estimated: an error of so few is itself a guess."""


class ChainResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One chain: the order parameter and its chi with errors (None where it was left out), and its updates by phase.

    `values` are the means of the observables that have a column in the table, by name. `seconds` is measured:
    processor time of the threads that ran it. `effective` is measured / (2 tau_int of the order parameter).
    """

    id: str
    system: System
    coordinate: float
    cheap: int
    warmup: int
    measured: int
    order: Estimate | None
    chi: Estimate | None
    values: dict[str, Value]
    effective: float
    seconds: float
    abandoned: str


def chain_results(state: CampaignState, found: Mapping[System, Finding]) -> tuple[ChainResult, ...]:
    """Return every chain of a campaign that looks for a peak, by system as in the spec, then coordinate."""
    errors: dict[str, ChainErrors] = {}
    for system, finding in found.items():
        errors |= chain_errors(state.points(system), finding.located)
    return tuple(_chain(state.spec.theory, chain, errors.get(chain.id)) for chain in in_order(state))


def in_order(state: CampaignState) -> list[ChainLog]:
    """Return the chains by system as in the spec, then coordinate."""
    order = {system: i for i, system in enumerate(state.spec.theory.systems)}
    return sorted(state.chains.values(), key=lambda c: (order.get(c.system, len(order)), c.system, c.coordinate, c.id))


def bare_result(theory: Theory, chain: ChainLog) -> ChainResult:
    """Return where the updates of a chain went, and its observables; all else is found of several together."""
    return ChainResult(
        id=chain.id,
        system=chain.system,
        coordinate=chain.coordinate,
        cheap=0,
        warmup=chain.by_phase["warmup"],
        measured=chain.measured,
        order=None,
        chi=None,
        values=_values(theory, chain, theory.observables),
        effective=float(chain.measured),
        seconds=chain.seconds,
        abandoned=next((d.reason for d in chain.decisions if d.what == "abandoned"), ""),
    )


def _values(theory: Theory, chain: ChainLog, names: Iterable[str]) -> dict[str, Value]:
    """Return the means of columns that are shown with one."""
    return {
        name: value
        for name in names
        if (shown := theory.described(name)).label
        and (value := value_of(shown.transform(chain.column(name)), error=shown.error, fewest=FEWEST_ROWS)) is not None
    }


def _chain(theory: Theory, chain: ChainLog, errors: ChainErrors | None) -> ChainResult:
    values, volume = theory.order_of(chain.column), theory.volume_of(chain.system)
    enough = chain.measured >= FEWEST_ROWS
    order = gamma_method(values) if enough else None
    return replace(
        bare_result(theory, chain),
        cheap=chain.by_phase["quench"],
        order=None if order is None or errors is None else replace(order, error=errors.order_error),
        chi=None
        if errors is None
        else replace(susceptibility(values, volume), mean=errors.chi, error=errors.chi_error),
        values=_values(theory, chain, chain.columns),
        effective=0.0 if order is None else chain.measured / (2 * order.tau_int),
    )


class Quoted(ResultPart, frozen=True, kw_only=True):
    """What is quoted, by name, with its error; `reason` says why it is not located, or not established."""

    name: str
    label: str
    unit: str
    value: float | None
    error: float | None
    established: bool
    reason: str | None


class SystemResult(ResultPart, frozen=True, kw_only=True):
    """What is found of one system with its evidence; `reason` says why it is not located or not established.

    `transition` is the peak of a susceptibility, `details` what a theory with another target has found.
    """

    system: System
    result: Quoted
    transition: Transition | None
    details: Any
    said: str
    reason: str
    established: bool
    evidence: tuple[Evidence, ...]
    chains: int
    measured: int


class Results:
    """What a campaign has found, finished or not: numbers with their evidence, and every row. Printing it says so.

    Each is computed from the state when it is first asked for.
    """

    def __init__(self, state: CampaignState, directory: Path | None = None) -> None:
        self.state = state
        """The fold of the journal."""
        self.directory = directory
        """Where the campaign is; None where nothing was kept."""
        self.spec = state.spec
        """The spec in force, with every default."""
        self.theory = state.spec.theory
        self.words = self.theory.words

    def __str__(self) -> str:
        return "\n".join(self.theory.report.lines(self))

    def __repr__(self) -> str:
        """Return one line: the verdict, and where the campaign is."""
        where = "" if self.directory is None else f" in {self.directory}"
        return f"<Results of {self.spec.name}{where}: {next(self.theory.report.lines(self), 'nothing yet')}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: verdict, transition and evidence."""
        from .page import notebook_html

        return notebook_html(self)

    # -- what was found --------------------------------------------------------------------------------------------

    @cached_property
    def found(self) -> Mapping[System, Any]:
        """What the chains of every system say."""
        return {system: self.theory.analysis.find(self.state, system) for system in self.theory.systems}

    @cached_property
    def curves(self) -> "Mapping[System, TransitionCurve]":
        """The reweighted curves by system."""
        return curves_of(self.state)

    @cached_property
    def chains(self) -> tuple[ChainResult, ...]:
        """What each chain measured."""
        return self.theory.report.chains(self)

    @cached_property
    def systems(self) -> tuple[SystemResult, ...]:
        """What is found of each system; the result is quoted for the first, where there is no extrapolation."""
        return tuple(self._system(system) for system in self.theory.systems)

    @cached_property
    def finite_size(self) -> "FiniteSize | None":
        """How the peak moves with the size, where two systems or more of one family are located."""
        peaks, law = [one.transition for one in self.systems if one.transition is not None], self.theory.size_law
        if law is None or len(peaks) < 2 or len({law.family(peak.system) for peak in peaks}) > 1:
            return None
        from metalforge.campaign.analysis.finite_size import analyse_volumes

        return analyse_volumes(peaks, law)

    @property
    def extrapolation(self) -> "FiniteSizeFit | None":
        """The line to the infinite system, which is quoted where there are systems enough."""
        return None if self.finite_size is None else self.finite_size.fit

    @property
    def limit_name(self) -> str:
        """What the infinite system is called; empty where nothing is extrapolated."""
        return "" if self.theory.size_law is None else self.theory.size_law.limit

    @cached_property
    def evidence(self) -> tuple[Evidence, ...]:
        """What the number rests on: every item with what was needed and what was found."""
        fit = self.extrapolation
        return self.systems[0].evidence if fit is None else line_evidence(self.theory.result_name, fit, self.systems)

    @cached_property
    def quoted(self) -> Quoted:
        """What the headline says: the extrapolation where there is one, else the first system."""
        if (fit := self.extrapolation) is None:
            return self.systems[0].result
        return self._quoted(fit.result, fit.error, self.evidence)

    @property
    def value(self) -> float | None:
        """What is quoted: of the infinite system where there are systems enough, else of the first one."""
        return self.quoted.value

    @property
    def error(self) -> float | None:
        """Its statistical error; None where no peak was located."""
        return self.quoted.error

    @property
    def established(self) -> bool:
        """Whether all of the evidence holds, so that the number may be quoted."""
        return self.quoted.established

    @property
    def reason(self) -> str | None:
        """What is lacking; None where nothing is."""
        return self.quoted.reason

    def _system(self, system: System) -> SystemResult:
        chains, found = [one for one in self.state.chains.values() if one.system == system], self.found[system]
        quoted = self._quoted(found.value, found.error, found.evidence)
        return SystemResult(
            system=system,
            result=msgspec.structs.replace(quoted, established=found.established),
            transition=getattr(found, "transition", None),
            details=None if hasattr(found, "transition") else found,
            said=found.said,
            reason=_lacking(found.evidence),
            established=found.established,
            evidence=found.evidence,
            chains=len(chains),
            measured=sum(chain.measured for chain in chains),
        )

    def _quoted(self, value: float | None, error: float | None, evidence: tuple[Evidence, ...]) -> Quoted:
        """Return a value of the coordinate as it is quoted."""
        found = (None, error) if value is None or error is None else self.theory.quoted(value, error)
        return Quoted(
            name=self.theory.result_name,
            label=self.words.found,
            unit=self.theory.unit,
            value=found[0],
            error=found[1],
            established=all(item.holds for item in evidence) and error is not None,
            reason=_lacking(evidence) or None,
        )

    # -- how it went -----------------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Wall time of the compute."""
        state = self.state
        ended = state.finished is not None or state.interruption is not None
        return state.seconds if ended else state.elapsed(state.last_at)

    @property
    def effective_per_second(self) -> float:
        """Effective samples of all chains, by wall time."""
        effective = sum(chain.effective for chain in self.chains if not chain.abandoned)
        return effective / self.seconds if self.seconds > 0 else 0.0

    @property
    def stopped_by(self) -> StoppedBy | None:
        """What ended it; None for a campaign that was interrupted, or still runs."""
        return self.state.stopped_by

    @cached_property
    def heads(self) -> dict[str, HeadAccount]:
        """In which decisions heads took part, and what differed by that."""
        return accounts_of(self.state)

    @property
    def energy(self) -> tuple[EnergySpent, ...]:
        """What every substrate spent, by source."""
        spent = sorted(self.state.energy.items())
        return tuple(msgspec.convert(entry, EnergySpent, from_attributes=True) for _, entry in spent)

    @property
    def summary(self) -> dict[str, Any]:
        """The few numbers that a script wants: what `metalforge scan --json` prints."""
        page = None if self.directory is None else self.directory / "report.html"
        return {
            "result": self.quoted,
            "evidence": self.evidence,
            "systems": self.systems,
            **({"infinite": self._infinite()} if len(self.systems) > 1 else {}),
            "trajectories": self.state.trajectories,
            "seconds": self.seconds,
            "stopped_by": self.stopped_by,
            "substrates": tuple(dict.fromkeys(silicon.name for silicon in self.state.opened.silicon)),
            "energy": self.energy,
            "heads": self.heads,
            "faults": faults_of(self.state),
            # Where observables were asked for: their means are the `values` of every chain.
            **({"chains": self.chains} if self.theory.observables else {}),
            "report": str(page) if page is not None and page.exists() else None,
        }

    def _infinite(self) -> dict[str, Any]:
        """Return the result of the infinite system: from which, how well they fit, and what to be careful about."""
        fit = self.extrapolation
        few = "no extrapolation: fewer than two systems of one family are located"
        return {
            "name": self.limit_name,
            "value": None if fit is None else self.value,
            "error": None if fit is None else self.error,
            "chi2": None if fit is None else fit.chi2,
            "dof": None if fit is None else fit.dof,
            "systems": () if fit is None else fit.systems,
            "reason": few if self.finite_size is None else "; ".join(self.finite_size.cautions),
            "established": fit is not None and self.established,
            "evidence": () if fit is None else self.evidence,
        }

    @property
    def said(self) -> list[str]:
        """What a campaign says when it is over: its verdict, what is published, how it ended, where the report is."""
        ended = "not finished" if self.stopped_by is None else f"stopped by {self.stopped_by}"
        page = self.summary["report"]
        lines = [str(self), self.theory.report.comparison(self)]
        lines.append(f"{self.state.trajectories} updates in {self.seconds:.1f} s, {ended}")
        lines.append("" if page is None else f"report: {page}")
        return [line for line in lines if line]

    # -- its rows, its report, and what others would have done -----------------------------------------------------

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

    def without_heads(self) -> dict[str, Any]:
        """Return what `replay --without heads --json` prints: decisions of heads beside those of the baselines."""
        found = otherwise(self.state)
        return {"heads": self.heads, "decisions": found, "different": sum(e.differs for e in found), "note": NOTE}

    def steered_by(self, steerer: str, at: int = 1) -> "Counterfactual":
        """Return what another steerer would have done from record `at` of the journal on; outcomes are modelled."""
        if self.directory is None:
            raise MetalforgeError("this campaign was kept nowhere, and visits are planned again from its journal")
        from metalforge.campaign.replanning import counterfactual

        return counterfactual(self.directory / JOURNAL, at, None, steerer)

    def report(self, directory: PathLike | None = None, *, beside: Sequence["Results"] = ()) -> Path:
        """Write the report, one HTML page with its figures and tables, and return its path.

        `beside` are campaigns to compare it with, in one figure and one table.
        """
        target = self.directory if directory is None else Path(directory)
        if target is None:
            raise MetalforgeError("this campaign was kept nowhere\nhint: say where the report goes: report(DIR)")
        from .page import write_report

        target.mkdir(parents=True, exist_ok=True)
        return write_report(self, target, beside)


def _lacking(evidence: Sequence[Evidence]) -> str:
    return "; ".join(item_text(item) for item in evidence if not item.holds)


def line_evidence(name: str, fit: "FiniteSizeFit", systems: tuple[SystemResult, ...]) -> tuple[Evidence, ...]:
    """Return what a line through the results of these systems rests on."""
    return (
        *(
            Evidence(
                name=f"{name} of {system_name(volume.system)}",
                holds=volume.established,
                value="established" if volume.established else "not established",
                needed=None,
                text=volume.reason,
            )
            for volume in systems
            if volume.system in fit.systems
        ),
        Evidence(
            name="chi2 of the line",
            holds=fit.consistent,
            value=fit.chi2 if fit.dof else NOT_APPLICABLE,
            needed=fit.largest_chi2 if fit.dof else None,
            at_most=True,
            text="" if fit.dof else "two systems determine the line",
        ),
    )
