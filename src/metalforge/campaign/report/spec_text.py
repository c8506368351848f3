"""A spec as a commented TOML file: every field with what it means, its unit, its choices and its default."""

from math import isnan
from textwrap import TextWrapper
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
import tomli_w

from metalforge.campaign.orderings import ORDERINGS
from metalforge.campaign.spec import Budget, CampaignSpec
from metalforge.campaign.steerers import steerer_names
from metalforge.lattice.actions import actions

HEADER = """\
# A metalforge campaign. Run it with: metalforge scan THIS_FILE
# Every field is here; one that is left out has its default. A line that begins with `# name =` is not set.
"""
COMMENT = TextWrapper(118, "# ", "# ", break_long_words=False, break_on_hyphens=False)


class Note(NamedTuple):
    """What a field means, and its unit where it is a number."""

    text: str
    unit: str = ""


TABLES: dict[str, str] = {
    "lattice": "The theory: a gauge action, S = beta sum_p (1 - Re tr U_p / 3) or another, and sea quarks if any.",
    "budget": "When to stop: whichever comes first. One of trajectories, seconds, joules is needed.",
    "warmup": "How long a new chain is left alone before it is measured.",
    "steering": "Where to measure next.",
    "screening": "What the reservoir looks at.",
    "running": "How it runs on this machine.",
}

NOTES: dict[str, Note] = {
    "name": Note("Name of the campaign, for people and for the directory's name"),
    "seed": Note("Seed of all random numbers, 0 to 2^32 - 1; chains are its streams", "integer"),
    "ordering": Note(
        "Which stages run where, by letter or name: "
        + "; ".join(f"{one.letter} or {one.name}: {one.about}" for one in ORDERINGS.values())
        + "; auto: measures which gives most effective samples"
    ),
    "placement": Note(
        "Whether warm-ups may end early: A or early-warm-up (the default), B or full-warm-up; C to F, the other places "
        "of experiment 020, count as one of these two"
    ),
    "lattice.volumes": Note("Lattices [x, y, z, t]; beta_c is quoted for the first one", "sites"),
    "lattice.beta_min": Note("Lower end of the scan", "inverse bare coupling 6 / g^2"),
    "lattice.beta_max": Note("Upper end of the scan", "inverse bare coupling 6 / g^2"),
    "lattice.algorithm": Note("What one update is: sweeps of heat bath and overrelaxation, or an HMC trajectory"),
    "lattice.heatbath": Note("Heat bath sweeps in one update", "sweeps"),
    "lattice.overrelax": Note("Overrelaxation sweeps in one update", "sweeps"),
    "lattice.tau": Note("Length of an HMC trajectory", "molecular dynamics time"),
    "lattice.n_steps": Note("Steps of an HMC trajectory; tuned in warm-up, frozen before measurement", "steps"),
    "lattice.integrator": Note("Integrator of an HMC trajectory"),
    "lattice.flavors": Note("Staggered sea quarks; 0 is the quenched theory", "flavors"),
    "lattice.mass": Note("Mass of the sea quarks; 0 with flavors = 0", "a m, lattice units"),
    "lattice.tolerance": Note("Relative residual of solves for the accept test", "|r| / |b|"),
    "lattice.force_tolerance": Note("Relative residual of solves for forces", "|r| / |b|"),
    "lattice.precision": Note("Real type of the links"),
    "lattice.action": Note(f"The gauge action: {' or '.join(actions())}; all but wilson want hmc and a range of beta"),
    "lattice.also_measure": Note("Observables that rows have besides, by name: wilson_loop, polyakov_z3"),
    "lattice.observable": Note(
        "Order parameter whose susceptibility is located; auto: |L| without sea quarks, Re L with them"
    ),
    "budget.trajectories": Note("Updates of all chains together, warm-up too", "updates"),
    "budget.seconds": Note("Wall time of the compute, without pauses between two processes", "s"),
    "budget.joules": Note("Energy, by a meter that can be read", "J"),
    "budget.target_error": Note("Error on beta_c at which the campaign is done", "as beta"),
    "budget.target_of": Note(
        "Which beta_c the target error is for, and what the work of several volumes is shared for: that of the first "
        "volume, or the extrapolation to infinite volume"
    ),
    "budget.max_wall": Note("Wall time of one process; it checkpoints before, and `resume` goes on", "s"),
    "warmup.longest": Note("Warm-up that is never exceeded", "updates"),
    "warmup.shortest": Note("Warm-up before which nothing is decided", "updates"),
    "warmup.quenched": Note("Updates without sea quarks that come first, at most; how many is predicted", "updates"),
    "warmup.safety": Note(
        "Multiplies the length at which the monitor first says that the chain has relaxed: the series is noisy",
        "factor",
    ),
    "steering.steerer": Note(f"Who proposes the next beta: {', '.join(steerer_names())}"),
    "steering.initial": Note("First points, spread over the range", "points"),
    "steering.visit": Note("Measured updates of one visit; a later visit continues the chain", "updates"),
    "steering.most": Note("Chains of one volume at most", "chains"),
    "steering.points": Note("Couplings that every volume visits before the steerer is asked", "beta"),
    "screening.every": Note("Every so many updates one goes through the reservoir", "updates"),
    "screening.window": Note("Measurements over which chi of the order parameter is taken", "updates"),
    "screening.chi": Note(
        "chi at which a configuration is flagged, and checked; the peak of 8^3x4 is 1.33", "N_s^3 variance"
    ),
    "screening.variance": Note("Predictive variance at which ordering E wakes its producer", "of log chi"),
    "screening.device": Note("Where the reservoir runs: npu is the chip, or its emulator where there is none"),
    "running.producers": Note("Chains at a time; 0: one per core", "chains"),
    "running.block": Note("Updates between two looks at a chain", "updates"),
    "running.deterministic": Note("Decide in rounds, budget in trajectories: bitwise reproducible"),
    "running.checkpoint_s": Note("Least time between two checkpoints of a chain", "s"),
    "running.energy": Note("Which joules may compare orderings"),
    "running.threads": Note("Threads of one chain", "threads"),
    "running.isolation": Note(
        "Producers as threads of one process or as processes: a crash of one, such as by the system's memory killer, "
        "then costs the updates since its chains' checkpoints"
    ),
    "running.exchange": Note(
        "Whether chains of one volume exchange couplings, so that they tunnel: auto, where they do not by themselves"
    ),
}
"""What is said about every field, by its path; a test asserts that none is missing."""


def spec_text(spec: CampaignSpec) -> str:
    """Return the spec as TOML with a comment for every field; it reads back as the same spec."""
    lines = [HEADER]
    tables = []
    for field in msgspec.structs.fields(spec):
        value = getattr(spec, field.name)
        if isinstance(value, msgspec.Struct):
            tables.append((field.name, value))
        else:
            lines += _field(field.name, field, value)
    for name, table in tables:
        lines += [f"\n# {TABLES[name]}", f"[{name}]"]
        for field in msgspec.structs.fields(table):
            lines += _field(f"{name}.{field.name}", field, getattr(table, field.name))
    return "\n".join(lines) + "\n"


def _field(path: str, field: msgspec.structs.FieldInfo, value: Any) -> list[str]:
    note = NOTES[path]
    about = [note.unit] if note.unit else []
    if choices := _choices(field.type):
        about.append("one of " + ", ".join(_value(choice) for choice in choices))
    about.append("default: " + _default(path, field))
    name = field.name
    assignment = f"# {name} =" if value is None else f"{name} = {_value(value)}"
    return [*COMMENT.wrap(f"{note.text} ({'; '.join(about)})"), assignment]


def _default(path: str, field: msgspec.structs.FieldInfo) -> str:
    default: Any = field.default
    # A file without a [budget] gets the default one; a file with one says what it wants.
    if path.startswith("budget.") and default is None:
        whole: Budget = CampaignSpec().budget
        default = getattr(whole, field.name)
        return "no limit" if default is None else f"{_value(default)} if there is no [budget], else no limit"
    if isinstance(default, float) and isnan(default):
        return "derived from N_t by published couplings, for Wilson's action without sea quarks"
    return _value(default)


def _choices(kind: Any) -> tuple[Any, ...]:
    """Return what a field may be, where its type lists it."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return tuple(c for part in get_args(kind) if part is not NoneType for c in _choices(part))
    return ()


def _value(value: Any) -> str:
    """Return a value as TOML writes it, arrays on one line."""
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_value(entry) for entry in value) + "]"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip("\n")
