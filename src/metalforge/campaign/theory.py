"""The physics of a campaign: one class, whose fields are a table of the spec. Everything else here knows no physics.

A *system* is what chains are of (a grid of some extents; a box of so many bodies), named by a tuple of integers. A
*point* is a system at a value of the *coordinate*, the number that a scan varies. A *target* is what the campaign is
for: a peak, a curve or a crossing. A theory says what its systems are, moves a chain from one configuration to the
next, and names what is measured; from there a campaign plans, journals, resumes, judges and reports by itself.

`examples/ising.py` is a whole theory in one file. Most methods have a default that suits a chain of arrays
(`array_chain`) whose order parameter has a peak; a theory with engines or targets of its own replaces more of them.
The built-in ones are found like anybody's, by the entry-point group `metalforge.theories`.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from math import isfinite, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import (
    FILES,
    Measurements,
    Observable,
    PluginError,
    SpecError,
    UnknownNameError,
    find_observables,
    load_files,
    load_named_files,
    load_plugin,
    observables_of,
    plugin_names,
)

if TYPE_CHECKING:  # a spec is read without loading what runs and judges it
    from metalforge.core import Advisor, ExpectedPeak

    from .chain_log import ChainLog
    from .findings import Analysis
    from .report.parts import Report
    from .running.batches import PointBatch
    from .running.orders import Snapshot
    from .running.point import PointChain, Tools
    from .spec import CampaignSpec

GROUP = "metalforge.theories"
NOTES = {
    "observables": ("Observables that rows have besides, by name",),
    "observe_every": ("Updates from one measurement of them to the next; rows between repeat the last", "updates"),
}
"""What is said of the fields that every theory has."""
System: TypeAlias = tuple[int, ...]
"""Names a system."""
Start: TypeAlias = str
"""Where a chain begins: a word of its theory, such as hot or cold."""
Floats: TypeAlias = NDArray[np.float64]
Target: TypeAlias = Literal["peak", "curve", "crossing"]
Configuration: TypeAlias = dict[str, NDArray[Any]]
"""The arrays of a chain, by name."""


class SpecTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; `LEAST` bounds its numbers from below."""

    LEAST: ClassVar[dict[str, float]] = {}

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if isinstance(value := getattr(self, name), float) and not isfinite(value):
                raise SpecError(f"`{name}` must be a finite number. Got {value}")
        for path, least in self.LEAST.items():
            value = getattr(self, path.rpartition(".")[2])
            if value is not None and not (isfinite(value) and value >= least):
                raise SpecError(f"`{path}` must be at least {least:g}. Got {value}")


class TheoryWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a campaign is spoken of, on pages and in figures; symbols as text."""

    coordinate: str
    axis: str
    """The coordinate as the label of an axis."""
    coupling: str
    """What people give instead of the coordinate, and `coupling_like` some."""
    coupling_like: str
    system: str
    system_like: str
    found: str
    """What a campaign finds, and `missing` that it has not."""
    missing: str
    error_of: str
    """What a target error is the error of, after a number."""
    figure: str
    """The title of the main figure, and what its two halves show: "" for none."""
    shows: tuple[str, str]
    columns: tuple[str, str, str]
    """The coordinate and what is shown, as names of columns in files."""
    chain: str = "chain"
    chains: str = "Chains"
    update: str = "update"


class WideWork(NamedTuple):
    """Updates of an order at least and at most, and how many times longer visits are than elsewhere."""

    least: int
    most: int
    visit: int


class OrderParameter(NamedTuple):
    """An order parameter as text and figures write it, its square, and what times its variance is chi."""

    text: str
    math: str
    square: str
    volume: str = "V"


class Place(NamedTuple):
    """Where a chain is: its system, its value of the coordinate, and where it began."""

    system: System
    at: float
    start: Start


class _AnyTheory:
    """What the field of a spec is declared as: `decoded` makes one of its `kind`, whichever theories there are."""

    __slots__ = ()


class Theory(SpecTable, _AnyTheory, frozen=True, kw_only=True, tag_field="kind"):
    """A table of the spec that says which physics it is."""

    screened: ClassVar[bool] = False
    """Whether heads look at its chains, so that a campaign may have a screen."""
    wide: ClassVar[WideWork] = WideWork(16, 256, visit=1)
    """How work is cut up where many chains move at once."""
    target: ClassVar[Target] = "peak"
    """What a campaign is for."""
    steerer: ClassVar[str] = "conductor"
    """Who places visits unless the spec says otherwise."""
    orderings: ClassVar[tuple[str, ...]] = ("C",)
    """The orderings that it can run in; empty: all."""
    shortest_warmup: ClassVar[int] = 1
    """Updates of a chain's warm-up, at least: what looks at them has no word of fewer."""
    size_law: ClassVar["SizeLaw | None"] = None
    """How the peak moves with the size of a system; None where nothing is extrapolated."""
    unit: ClassVar[str] = ""
    """The unit of what is quoted, in words; empty for a pure number."""
    LEAST: ClassVar[dict[str, float]] = {"observe_every": 1}

    observables: tuple[str, ...] = ()
    observe_every: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if twice := [name for name in self.observables if name in self.columns() or self.observables.count(name) > 1]:
            raise SpecError(f"`{self.table()}.observables` names what rows have anyway, or names it twice: {twice[0]}")
        find_observables(self.table(), self.observables)

    @classmethod
    def table(cls) -> str:
        """Return its name in the spec."""
        return str(cls.__struct_config__.tag)

    @classmethod
    def notes(cls) -> Mapping[str, tuple[str, ...]]:
        """Return what is said of the table, under the empty name, and of every field: what it means, and its unit.

        They stand in the file `spec_text.toml` beside the theory, if there is one.
        """
        own: dict[str, tuple[str, ...]] = {"": ((cls.__doc__ or cls.table()).partition("\n")[0],)}
        file = Path(str(sys.modules[cls.__module__].__file__)).with_name("spec_text.toml")
        if file.is_file():
            own = msgspec.toml.decode(file.read_bytes(), type=dict[str, tuple[str, ...]])
        return {**NOTES, **own}

    # -- systems and the coordinate ------------------------------------------------------------------------------------

    @property
    def systems(self) -> tuple[System, ...]:
        """What chains are of, in the order of the spec."""
        raise self._lacks("systems")

    @property
    def low(self) -> float:
        """The smallest value of the coordinate."""
        raise self._lacks("low")

    @property
    def high(self) -> float:
        """The largest value of the coordinate."""
        raise self._lacks("high")

    @property
    def words(self) -> TheoryWords:
        """How it is spoken of."""
        raise self._lacks("words")

    @property
    def coordinate(self) -> str:
        """What points differ in, in words."""
        return self.words.coordinate

    def at(self, coupling: float) -> float:
        """Return the coordinate of a coupling as people give it."""
        return coupling

    def coupling(self, coordinate: float) -> float:
        """Return what people call a value of the coordinate: the inverse of `at`."""
        return coordinate

    def of(self, systems: Sequence[System]) -> Self:
        """Return it with other systems."""
        raise SpecError(f"the systems of `[{self.table()}]` are said in the spec\nhint: change the file")

    def with_more(self, systems: Sequence[System]) -> Self:
        """Return it with more systems beside its own; raises where they do not belong together."""
        return self.of((*self.systems, *systems))

    def within(self, low: float, high: float) -> Self:
        """Return it with other ends of the coordinate."""
        raise SpecError(f"the range of `[{self.table()}]` is said in the spec\nhint: change the file")

    def bytes_of(self, system: System) -> int:
        """Return what one chain of a system takes in memory."""
        return 64 * prod(system)

    def check(self, spec: "CampaignSpec") -> None:
        """Raise where another table of the spec does not go with this one."""

    # -- how chains run ------------------------------------------------------------------------------------------------

    @property
    def update_is(self) -> str:
        """What an update is, in a word or two."""
        return self.words.update

    @property
    def sums_matter(self) -> bool:
        """Whether the order of sums has a say in what comes next: then one kind of engine goes on with a chain."""
        return False

    @property
    def batches(self) -> bool:
        """Whether an engine may move many of its chains at once."""
        return False

    @property
    def why_no_cards(self) -> str:
        """Why a campaign that is not told where to run leaves cards alone; nothing where it takes them."""
        return "its chains run on cores"

    def columns(self) -> tuple[str, ...]:
        """Return the observables that rows always have."""
        return "energy", "order"

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The columns of rows, with the observables that were asked for."""
        return (*self.columns(), *self.observables)

    @property
    def measured(self) -> Measurements:
        """The observables that were asked for, and when they are measured."""
        return Measurements(find_observables(self.table(), self.observables), self.observe_every)

    def begin(self, place: Place, numbers: np.random.Generator) -> Configuration:
        """Return the arrays of a new chain."""
        raise self._lacks("begin")

    def update(self, arrays: Configuration, place: Place, numbers: np.random.Generator) -> Mapping[str, float]:
        """Move the arrays by one update, in place, and return its row; all random numbers are from `numbers`."""
        raise self._lacks("update")

    def unsound(self, arrays: Configuration, place: Place) -> str:
        """Return why no sound chain has such arrays; empty where they may be right."""
        return ""

    def start_of(self, number: int) -> Start:
        """Return where the chain of this number begins, unless somebody wants another start."""
        return ("hot", "cold")[number % 2]

    def point(self, known: "ChainLog", tools: "Tools", checkpoint: Path | None = None) -> "PointChain":
        """Return a chain, from its checkpoint or new."""
        from .array_chain import ArrayPoint

        return ArrayPoint(known, tools, checkpoint)

    def batch(self, members: Sequence[Any]) -> "PointBatch":
        """Return room for chains of one kind, those of `members` and as many others, that move at once."""
        raise self._lacks("batch")

    def evaluated_again(self, shot: "Snapshot") -> tuple[str, dict[str, float]]:
        """Return in which precision a configuration was evaluated once more, and how far what was measured is off."""
        raise SpecError(f"configurations of `[{self.table()}]` are not evaluated again\nhint: another ordering")

    @property
    def tuned(self) -> bool:
        """Whether updates are trajectories with an accept test, whose steps are tuned in the warm-up."""
        return False

    def cheap_updates(self, at: float, system: System, peak: float | None) -> int:
        """Return with how many cheaper updates a new chain begins, before the limit `warmup.cheap`; 0 for none.

        `peak` is the coordinate of the latest result of the system.
        """
        return 0

    # -- learned advice ------------------------------------------------------------------------------------------------

    def advisor(self, *, profile: str = "", weights: Path | None = None) -> "Advisor | None":
        """Return who reads the chains and advises, by a user's `weights` where they are given; None: nobody does.

        The network runs on an emulated device where a `profile` is named.
        """
        if weights is not None:
            raise SpecError(f"`screening.weights`: no head reads chains of `[{self.table()}]`. Got {weights}")
        return None

    def expected(self, system: System) -> "ExpectedPeak | None":
        """Return where a peak is expected before anything is measured; None where nothing is known of it."""
        return None

    # -- what rows say -------------------------------------------------------------------------------------------------

    @property
    def order(self) -> OrderParameter:
        """The order parameter of a peak, as it is written."""
        return OrderParameter("the order parameter", r"\mathrm{order}", r"\mathrm{order}^2")

    def energy_of(self, chain: "ChainLog") -> Floats:
        """Return E in every measured row: the weight of a configuration is exp(-coordinate E) times what is fixed."""
        return chain.column("energy")

    def order_of(self, columns: Callable[[str], Floats]) -> Floats:
        """Return the order parameter in every row, from the columns of a chain."""
        return columns("order")

    def volume_of(self, system: System) -> int:
        """Return what the variance of the order parameter is multiplied by to give its susceptibility."""
        return prod(system)

    def warmup_columns(self, columns: Mapping[str, Any]) -> tuple[Sequence[float], Sequence[float]]:
        """Return the two series by which the end of a warm-up is judged."""
        return columns["energy"], self.order_of(lambda name: np.array(columns[name], np.float64)).tolist()

    def variance_of_energy(self, system: System) -> float:
        """Return about the variance of E where nothing was measured yet."""
        return float(prod(system))

    def reach_of(self, system: System) -> float | None:
        """Return how far along the coordinate a chain can be reweighted, 1 / sd(E); None where it cannot."""
        return self.variance_of_energy(system) ** -0.5 if self.target == "peak" else None

    @property
    def live_columns(self) -> tuple[str, ...]:
        """The columns whose recent means are shown beside each chain while a campaign runs."""
        return ()

    def described(self, name: str) -> Observable:
        """Return how a column is shown: as the observable of this name, if there is one."""
        found = observables_of(self.table()).get(name)
        return found or Observable(name=name, label=name, measure=lambda seen: None)

    def quoted(self, value: float, error: float) -> tuple[float, float]:
        """Return a result of the coordinate, and its error, as what is quoted."""
        return value, error

    @property
    def result_name(self) -> str:
        """What the result is called in files."""
        return f"{self.coordinate}_c"

    @property
    def analysis(self) -> "Analysis":
        """Who makes results of rows."""
        from .findings import Analysis

        return Analysis()

    @property
    def report(self) -> "Report":
        """Who shows results to people."""
        from .report.parts import PeakReport

        return PeakReport()

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process as JSON: a file that has the class may not be a module there."""
        file = sys.modules[type(self).__module__].__file__ if self.table() not in plugin_names(GROUP) else None
        return _arrived, (file, msgspec.json.encode(self))

    def _lacks(self, name: str) -> SpecError:
        return SpecError(f"the theory `{self.table()}` does not say its `{name}`\nhint: define it in {type(self)!r}")


class SizeLaw:
    """A line on which the peaks of growing systems lie: value(system) = limit - h x(system), with x -> 0.

    What is known of the next term q x^2 is its size: q is taken for a Gaussian number around 0 with the standard
    deviation `bend` times h.
    """

    bend: float = 1.0
    largest_h: float = float("inf")
    """h beyond which q is not larger: peaks that contradict each other have any."""
    axis: str = "x"
    """x as a label, in mathematics."""
    holds_where: str = ""
    """On which systems the line is expected, in words; empty: on all."""
    limit: str = "the infinite system"
    height: str = "volume"
    """The label of what the height of the peak is drawn against, and `height_at` its value."""

    def x(self, system: System) -> float:
        """Return where a system is on the line; 0 is the limit."""
        return 1 / system[0]

    def height_at(self, system: System) -> float:
        """Return the size against which the height of a peak is drawn."""
        return float(prod(system))

    def holds(self, system: System) -> bool:
        """Return whether a system is expected on the line."""
        return True

    def family(self, system: System) -> object:
        """Return what systems on one line have in common."""
        return None


_KINDS: dict[str, type[Theory]] = {}


def register_theory(kind: type[Theory]) -> type[Theory]:
    """Make a theory known by the name of its table, which no other may have."""
    name = kind.table()
    if not name.isidentifier() or (name in _KINDS and _KINDS[name].__qualname__ != kind.__qualname__):
        raise SpecError(f'a theory needs a name of its own, letters and digits, as in `tag="ising"`. Got `{name}`')
    _KINDS[name] = kind
    return kind


def theory_names() -> tuple[str, ...]:
    """Return the names of all theories."""
    return tuple(dict.fromkeys((*_KINDS, *plugin_names(GROUP))))


def find_theory(name: str) -> type[Theory]:
    """Return a theory by the name of its table."""
    if name not in _KINDS:
        load_named_files()
    if name not in _KINDS:
        if name not in plugin_names(GROUP):
            error = UnknownNameError("theory", name, theory_names())
            error.add_note(f"hint: a theory in a file is loaded by --plugin FILE.py, or where {FILES} names the file")
            raise error
        kind = register_theory(load_plugin(GROUP, name))
        if kind.table() != name:
            raise PluginError(
                f"the entry point `{name}` of {GROUP} holds the theory `{kind.table()}`: names must agree"
            )
    return _KINDS[name]


def _arrived(file: str | None, text: bytes) -> Theory:
    """Return a theory that another process sent."""
    plain = msgspec.json.decode(text)
    if file is not None and plain["kind"] not in _KINDS:
        load_files([file])
    return msgspec.convert(plain, find_theory(plain["kind"]))


def decoded(kind: type, value: Any) -> Any:
    """Return what msgspec cannot decode by itself: a theory, by its `kind`."""
    if kind is not _AnyTheory:
        raise NotImplementedError(f"no decoding of {kind}")
    if not isinstance(value, dict) or not isinstance(name := value.get("kind"), str):
        raise ValueError("`theory` must be a table with a `kind`")
    kind = find_theory(name)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, inner = str(error).partition(" - at `$")
        raise msgspec.ValidationError(f"{what} - at `$.{name}{inner or '`'}") from error


if TYPE_CHECKING:
    TheoryField = Theory
else:
    TheoryField = _AnyTheory
