"""The records of a journal: everything a campaign decided and found, in the order in which it happened.

State is the fold of these (`campaign.state`). Times are seconds since the epoch, durations seconds; random numbers are
addressed, so nothing of a generator's state needs to be kept. A decision is written before it takes effect.
"""

from typing import Literal, TypeAlias

import msgspec

from metalforge.campaign.analysis.evidence import Evidence, Want
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.theory import Start, System
from metalforge.core import Phase, Quantity

EMULATED_NPU = "npu-emulated"
"""The substrate of a screen on an emulated board."""
BY_HEAD = "head:"
"""How `by` begins where a head decided."""
StoppedBy: TypeAlias = Literal["target", "trajectories", "seconds", "joules", "exhausted", "asleep"]

Promise: TypeAlias = Literal["none", "last", "all"]


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """One line of the journal; whoever writes it there dates it (`running.book`)."""

    at: float = 0.0


class Silicon(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A logical substrate of the campaign: its name there, the device behind it, and what it does."""

    name: str
    device: str
    model: str
    role: str


class Opened(_Record, frozen=True, kw_only=True, tag="opened"):
    """The campaign began: the resolved spec and all that a reader needs to run it again.

    `host` names the machine in words; `commit` is that of the source tree, empty where it is not known; `checkpoints`
    is the campaign's own address in the place that its spec names, empty for its directory. `campaign` is a random name
    of twelve hexadecimal digits, which copies of the directory share; `npu` is the board that reads heads, empty: none.
    """

    spec: CampaignSpec
    spec_sha256: str
    package_version: str
    isa: str
    command: tuple[str, ...]
    ordering: str
    silicon: tuple[Silicon, ...]
    python: str
    versions: dict[str, str] = {}
    host: str = ""
    commit: str = ""
    checkpoints: str = ""
    campaign: str = ""
    pid: int = 0
    npu: str = ""


class Resumed(_Record, frozen=True, kw_only=True, tag="resumed"):
    """Another process took over; `cut` says what was torn off the journal's end."""

    package_version: str
    isa: str
    cut: str = ""


class Extended(_Record, frozen=True, kw_only=True, tag="extended"):
    """More was asked of the campaign, finished or not: from here on this is its spec. `command` is how it was asked.

    `by` is who asked a campaign that was running; empty: whoever took it up.
    `checkpoints` is the campaign's own address from here on, where it is another one.
    """

    spec: CampaignSpec
    command: tuple[str, ...] = ()
    checkpoints: str | None = None
    by: str = ""


class Commanded(_Record, frozen=True, kw_only=True, tag="commanded"):
    """Somebody asked something of a campaign that runs; the campaign alone writes it, with what it said to that."""

    by: str
    what: str
    asked: dict[str, str] = {}
    accepted: bool
    reason: str = ""


class Assigned(_Record, frozen=True, kw_only=True, tag="assigned"):
    """A decision: where to measure next. `visit` counts decisions, `round` those of a deterministic campaign."""

    visit: int
    round: int
    chain: str
    stream: int
    system: System
    coordinate: float
    updates: int
    fresh: bool
    substrate: str
    by: str
    reason: str
    score: float = 0.0
    cheap: int = 0
    """Cheaper updates that a new chain begins with, where its theory has any."""
    start: Start = ""
    """Of a new chain; empty: as its theory has it, by its stream."""
    n_steps: int = 0
    """Steps of a trajectory that a new chain begins with; 0: those of the spec."""
    instead_of: str = ""
    """The chain that was given up for a new one at its coupling."""
    mean: float | None = None
    """Of the steerer's posterior at `coordinate`, in its own units; `width` is the deviation there."""
    width: float | None = None
    head: str = ""
    """The head whose answer the steerer was given; empty for none."""
    baseline: float | None = None
    """With a head: the coupling of the visit without its answer; None where there would be no visit."""
    by_head: bool = False
    """Whether the head decided where the visit is: without its answer the visit is elsewhere."""
    candidates: tuple[float, ...] = ()
    """Couplings that the steerer chose from, thinned, each with its `acquisition`; none where a rule placed it."""
    acquisition: tuple[float, ...] = ()


class Decided(_Record, frozen=True, kw_only=True, tag="decided"):
    """A decision about a chain, a volume or the campaign: `head`, `warmup-ends`, `peak-prior`, `sleep`, `wake`, ...

    `by` is a head, a rule or a person; `trusted` says whether a head's word was taken; `value` and `baseline` are what
    the head and the rule beside it said.
    """

    what: str
    chain: str = ""
    step: int = 0
    by: str
    reason: str
    value: float | None = None
    width: float | None = None
    """How well `value` is known, where that was decided too."""
    baseline: float | None = None
    trusted: bool | None = None
    system: System | None = None
    """The volume that it is about, where it is about one."""
    head: str = ""
    """The head that took part, whether its answer was followed or not."""
    done: str = ""
    """What was done, in words."""


THROWN_AWAY = "thrown away"
"""How `done` begins where a block was, to be computed again."""


class Rows(_Record, frozen=True, kw_only=True, tag="rows"):
    """What updates `first`, `first` + 1, ... gave, by column."""

    chain: str
    phase: Phase
    first: int
    columns: dict[str, tuple[float, ...]]
    seconds: float
    """Measured: processor time of the thread that ran them."""


class BlockDone(_Record, frozen=True, kw_only=True, tag="block"):
    """A chain has come to `step`, where its configuration has this digest; `done` when the visit is complete.

    `promised` says which of its configurations are evaluated again: none, the last one, or all.
    """

    visit: int
    chain: str
    step: int
    digest: str
    done: bool
    substrate: str
    promised: Promise = "none"
    began: float = 0.0
    """When the first of its updates began, by the clock that dates the record; 0: not known."""


class Migrated(_Record, frozen=True, kw_only=True, tag="migrated"):
    """A chain went to another substrate, by its checkpoint at `step`."""

    chain: str
    step: int
    source: str
    target: str


class Screened(_Record, frozen=True, kw_only=True, tag="screened"):
    """What the reservoir said of a chain at `step`, by head; heads that do not apply are not there.

    `busy` is the device time that reading its rows took and `energy` what was charged for it, where that is known.
    """

    chain: str
    step: int
    route: str
    chi: float | None
    flagged: bool
    heads: dict[str, float]
    busy: Quantity | None = None
    energy: Quantity | None = None


class Checked(_Record, frozen=True, kw_only=True, tag="checked"):
    """A configuration was evaluated again in higher precision: how far what was measured is off, by what it is."""

    chain: str
    step: int
    substrate: str
    precision: str
    drift: dict[str, float]


class Estimated(_Record, frozen=True, kw_only=True, tag="estimated"):
    """The result so far, of one system, after `trajectories` updates; None where it is not located, and why.

    `effective` counts the independent samples that carry the peak, `width` is half of its width at half of its height;
    `overlap` is the smallest one between neighbours, `crossings` counts passages between the phases.
    """

    system: System
    trajectories: int
    result: float | None
    error: float | None
    height: float | None = None
    reason: str = ""
    effective: float = 0.0
    width: float = 0.0
    established: bool = False
    evidence: tuple[Evidence, ...] = ()
    wants: tuple[Want, ...] = ()
    overlap: float | None = None
    crossings: int | None = None


class EnergySpent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Joules so far of one substrate from one source; `emulation_s` is the emulator's own processor time.

    For a board that is held, `energy` is what its work took above `idle`, which it drew for all of `held_s` seconds of
    wall time; `busy` is the device time of that work. Where `idle` is None, `energy` is all that is charged.
    """

    substrate: str
    source: str
    energy: Quantity | None = None
    emulation_s: float | None = None
    reason: str = ""
    idle: Quantity | None = None
    busy: Quantity | None = None
    held_s: float | None = None


class Energy(EnergySpent, frozen=True, kw_only=True, tag_field="kind", tag="energy"):
    """What was spent, as a line of the journal."""

    at: float = 0.0


class StageNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stage of the graph; `isolation` is where it runs: a thread, a process, a node."""

    name: str
    substrate: str | None
    isolation: str = ""


class StageEdge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An edge of the graph with its channel in words."""

    source: str
    target: str
    channel: str
    feedback: bool = False


class Topology(_Record, frozen=True, kw_only=True, tag="topology"):
    """The graph that runs from here on: when it begins, and again whenever it was rewired."""

    ordering: str
    stages: tuple[StageNode, ...]
    edges: tuple[StageEdge, ...]


class StageSample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a stage has done since its graph began: sums, so that leaving samples out loses nothing but detail."""

    stage: str
    items: int
    busy_s: float
    waited_get_s: float
    waited_put_s: float
    queue: int
    """Items that wait before it now."""


class JoulesSample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Joules of one substrate from one source since this process took the campaign up; sources are never added up."""

    substrate: str
    source: str
    joules: float


class Sampled(_Record, frozen=True, kw_only=True, tag="sampled"):
    """How the graph is doing, `window_s` seconds after it began: every two seconds, which says that it lives, too."""

    window_s: float
    stages: tuple[StageSample, ...]
    energy: tuple[JoulesSample, ...] = ()
    paused: bool = False


class Interrupted(_Record, frozen=True, kw_only=True, tag="interrupted"):
    """The process was asked to stop, and left everything for `resume`."""

    reason: str
    trajectories: int
    seconds: float


class Finished(_Record, frozen=True, kw_only=True, tag="finished"):
    """The campaign ended by itself."""

    stopped_by: StoppedBy
    trajectories: int
    seconds: float


Record: TypeAlias = (
    Opened
    | Resumed
    | Extended
    | Commanded
    | Assigned
    | Decided
    | Rows
    | BlockDone
    | Migrated
    | Screened
    | Checked
    | Estimated
    | Energy
    | Topology
    | Sampled
    | Interrupted
    | Finished
)
