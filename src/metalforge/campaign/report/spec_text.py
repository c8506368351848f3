"""A spec as a commented TOML file: every field with what it means, its unit, its choices and its default."""

from importlib.resources import files
from math import isnan
from textwrap import TextWrapper
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import tomli_w

from metalforge.campaign.orderings import ORDERINGS
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.steerers import steerer_names
from metalforge.campaign.theory import Theory

HEADER = """\
# A metalforge campaign. Run it with: metalforge scan THIS_FILE
# Every field is here; one that is left out has its default. A line that begins with `# name =` is not set.
"""
COMMENT = TextWrapper(118, "# ", "# ", break_long_words=False, break_on_hyphens=False)


_TEXT = msgspec.toml.decode(
    files(__package__).joinpath("spec_text.toml").read_bytes(), type=dict[str, dict[str, tuple[str, ...]]]
)
_NAMES = {
    "orderings": "; ".join(f"{one.letter} or {one.name}: {one.about}" for one in ORDERINGS.values()),
    "steerers": ", ".join(steerer_names()),
}
TABLES = {name: text for name, (text,) in _TEXT["tables"].items()}
NOTES = {path: (text.format(**_NAMES), *unit) for path, (text, *unit) in _TEXT["fields"].items()}
"""What every field means, and its unit if it has one, by its path; a test asserts that none is missing."""


def spec_text(spec: CampaignSpec) -> str:
    """Return the spec as TOML with a comment for every field; it reads back as the same spec."""
    lines = [HEADER]
    tables: list[tuple[str, msgspec.Struct, str, dict[str, tuple[str, ...]]]] = []
    for field in msgspec.structs.fields(spec):
        value = getattr(spec, field.name)
        if isinstance(value, Theory):
            notes = dict(value.notes())
            tables.append((value.table(), value, notes.pop("")[0], notes))
        elif isinstance(value, msgspec.Struct):
            own = {name.partition(".")[2]: note for name, note in NOTES.items() if name.startswith(f"{field.name}.")}
            tables.append((field.name, value, TABLES[field.name], own))
        else:
            lines += _field(field.name, NOTES[field.name], field, value)
    for name, table, about, notes in tables:
        lines += ["", *COMMENT.wrap(about), f"[{name}]"]
        for field in msgspec.structs.fields(table):
            note = notes.get(field.name, (field.name.replace("_", " "),))
            lines += _field(f"{name}.{field.name}", note, field, getattr(table, field.name))
    return "\n".join(lines) + "\n"


def _field(path: str, note: tuple[str, ...], field: msgspec.structs.FieldInfo, value: Any) -> list[str]:
    text, *about = note
    if choices := _choices(field.type):
        about.append("one of " + ", ".join(_value(choice) for choice in choices))
    about.append("default: " + _default(path, field))
    name = field.name
    assignment = f"# {name} =" if value is None else f"{name} = {_value(value)}"
    return [*COMMENT.wrap(f"{text} ({'; '.join(about)})"), assignment]


def _default(path: str, field: msgspec.structs.FieldInfo) -> str:
    default: Any = field.default
    # A file without a [budget] gets the default one; a file with one says what it wants.
    if path.startswith("budget.") and default is None:
        whole: Any = next(one.default for one in msgspec.structs.fields(CampaignSpec) if one.name == "budget")
        default = getattr(whole, field.name)
        return "no limit" if default is None else f"{_value(default)} if there is no [budget], else no limit"
    if isinstance(default, float) and isnan(default):
        return "derived"
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
    if isinstance(value, msgspec.Struct):
        return "{ " + ", ".join(f"{k} = {_value(v)}" for k, v in msgspec.structs.asdict(value).items()) + " }"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_value(entry) for entry in value) + "]"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip("\n")
