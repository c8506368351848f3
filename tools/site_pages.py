"""Pages of the documentation site that are made from the code, and the links that lead between repository and site.

`generated()` gives every page by its path below `docs/`; `tools/site_hook.py` hands them to MkDocs, and the guards of
the tests use the same list, so that a link to a page that is not written by hand is checked as well.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from types import NoneType
from typing import Any, get_args

import click
import msgspec

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "metalforge"
FROM_THE_ROOT = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "contributors/architecture.md",
    "CONTRIBUTING.md": "contributors/contributing.md",
    "CHANGELOG.md": "changelog.md",
    "BENCHMARKS.md": "evidence/benchmarks.md",
    "SECURITY.md": "security.md",
}
"""Documents that stand at the root of the repository, where people look for them, and their place in the site."""
REFERENCES = ("reference/cli.md", "reference/spec.md", "reference/journal.md")
ROOMS = tuple(sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")))
LINK = re.compile(r"(?<!!)\[([^\]\[]+)\]\(([^)#:\s]*)(#[\w-]*)?\)")
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)#:\s]+)\)")


def generated_paths() -> set[str]:
    """Return the paths of the pages that `generated` makes."""
    rooms = {f"{where}/{room}.md" for where in ("reference/api", "contributors/rooms") for room in ROOMS}
    return {*FROM_THE_ROOT.values(), *REFERENCES, *rooms}


def generated() -> dict[str, str]:
    """Return every page that is not written by hand: its path below `docs/` and its Markdown."""
    pages = {site: site_links((ROOT / name).read_text(), name, site) for name, site in FROM_THE_ROOT.items()}
    pages |= dict(zip(REFERENCES, (cli_page(), spec_page(), journal_page()), strict=True))
    for room in ROOMS:
        pages[f"reference/api/{room}.md"] = api_page(room)
        pages[f"contributors/rooms/{room}.md"] = room_page(room)
    return pages


def site_links(text: str, source: str, site: str) -> str:
    """Return the text of a document with its links as they are in the site.

    `source` is its path in the repository, `site` its path below `docs/`. A link to something that the site does not
    have, such as a source file, becomes its words.
    """

    def target(path: str) -> str | None:
        wanted = normpath(str(PurePosixPath(source).parent / path))
        if wanted in FROM_THE_ROOT:
            wanted = FROM_THE_ROOT[wanted]
        elif wanted.startswith("docs/") and PurePosixPath(wanted).suffix:
            wanted = wanted.removeprefix("docs/")
        else:
            return None
        return relpath(wanted, str(PurePosixPath(site).parent))

    def link(found: re.Match[str]) -> str:
        words, path, anchor = found[1], found[2], found[3] or ""
        if not path:
            return found[0]
        there = target(path)
        return words if there is None else f"[{words}]({there}{anchor})"

    text = IMAGE.sub(lambda found: f"![{found[1]}]({target(found[2]) or found[2]})", text)
    return LINK.sub(link, text)


def cli_page() -> str:
    """Return the reference of the command line, from the verbs themselves."""
    from typer.main import get_command

    from metalforge.cli.guard import EXIT_CODES
    from metalforge.cli.main import assembled

    parts = [
        "# Command line",
        "Made from the verbs themselves: it is what `--help` says. Data goes to stdout, talk to stderr; "
        "`--json` gives records.",
        EXIT_CODES,
    ]
    for name, command in _commands(get_command(assembled()), "metalforge"):
        with click.Context(command, info_name=name) as context:
            usage = " ".join(command.collect_usage_pieces(context))
            parts += [f"## {name}", inspect.cleandoc(command.help or ""), f"```text\n{name} {usage}\n```"]
            rows = [row for one in command.get_params(context) if (row := _parameter(one, context))]
            parts.append("\n".join(["| argument or option | meaning |", "| --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, one in command.commands.items():
        yield from _commands(one, f"{name} {word}")


def _parameter(one: Any, context: click.Context) -> str:
    if one.name == "help":
        return ""
    record = one.get_help_record(context)
    names, meaning = record if record else (one.make_metavar(context), getattr(one, "help", None) or "")
    return f"| `{_cell(names)}` | {_cell(meaning)} |"


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def spec_page() -> str:
    """Return the reference of a campaign's spec: every field with its meaning, unit and default."""
    from metalforge.campaign.report.spec_text import NOTES, TABLES
    from metalforge.campaign.spec import CampaignSpec
    from metalforge.campaign.theory import find_theory, theory_names

    parts = [
        "# Spec of a campaign",
        "Made from the records that a TOML file fills in. `metalforge scan --print-spec` writes the same as a "
        "commented file. A field that is left out has its default; an unknown name is an error with its path.",
    ]
    top = [one for one in msgspec.structs.fields(CampaignSpec) if one.name in NOTES]
    parts += ["## Top of the file", _fields_table((one, NOTES[one.name]) for one in top)]
    for theory in map(find_theory, theory_names()):
        notes = theory.notes()
        fields = msgspec.structs.fields(theory)
        parts += [f"## [{theory.table()}]", notes[""][0]]
        parts.append(_fields_table((one, notes[one.name]) for one in fields))
    for name, about in TABLES.items():
        kind = next(one.type for one in msgspec.structs.fields(CampaignSpec) if one.name == name)
        fields = msgspec.structs.fields(next((part for part in get_args(kind) if part is not NoneType), kind))
        parts += [f"## [{name}]", about, _fields_table((one, NOTES[f"{name}.{one.name}"]) for one in fields)]
    return "\n\n".join(parts) + "\n"


def _fields_table(fields: Iterator[tuple[Any, Any]]) -> str:
    rows = ["| field | default | unit | meaning |", "| --- | --- | --- | --- |"]
    rows += [
        f"| `{one.name}` | {_default(one)} | {_cell(' '.join(unit))} | {_cell(text)} |" for one, (text, *unit) in fields
    ]
    return "\n".join(rows)


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default
    if value is msgspec.NODEFAULT:
        if field.default_factory is msgspec.NODEFAULT:
            return "required"
        value = field.default_factory()
    if value != value or value is None:  # NaN: derived from the rest of the spec
        return "derived or not set"
    if isinstance(value, msgspec.Struct):
        return "as below"
    return f"`{_cell(repr(value))}`"


def journal_page() -> str:
    """Return the reference of a journal's records: every kind with its fields."""
    from metalforge.campaign.store import records

    parts = [
        "# Records of a journal",
        "Made from the records themselves. A journal is a file of lines, "
        '`{"crc": ..., "v": 1, "n": number, "body": {"kind": ..., "at": seconds since the epoch, ...}}`; '
        "the body is one of these. Fields that have a default may be missing.",
    ]
    notes = _attribute_docstrings(Path(str(records.__file__)))
    for record in get_args(records.Record):
        tag = record.__struct_config__.tag
        parts += [f"## {tag}", inspect.cleandoc(record.__doc__ or "")]
        rows = ["| field | type | default | meaning |", "| --- | --- | --- | --- |"]
        for one in msgspec.structs.fields(record):
            meaning = notes.get((record.__name__, one.name), "")
            rows.append(f"| `{one.name}` | `{_cell(_type_name(one.type))}` | {_default(one)} | {_cell(meaning)} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _type_name(kind: Any) -> str:
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return re.sub(r"(?:\w+\.)+(\w+)", r"\1", text)


def _attribute_docstrings(path: Path) -> dict[tuple[str, str], str]:
    """Return the sentences that stand below the fields of a module's classes, by class and field."""
    found = {}
    for owner in ast.parse(path.read_text()).body:
        if isinstance(owner, ast.ClassDef):
            for field, below in zip(owner.body, owner.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                    found[owner.name, ast.unparse(field.target)] = str(ast.literal_eval(below.value))
    return found


def api_page(room: str) -> str:
    """Return the page of a room's public names, which mkdocstrings fills from their docstrings."""
    return f"# metalforge.{room}\n\n::: metalforge.{room}\n    options:\n      members: {list(_exported(room))}\n"


def _exported(room: str) -> tuple[str, ...]:
    return tuple(import_module(f"metalforge.{room}").__all__)


def room_page(room: str) -> str:
    """Return the page of a room for contributors: what comes in and goes out, and its modules in a sentence each."""
    parts = [f"# {room}", _room_line(room).replace("|", "\\|")]
    docstring = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text())) or ""
    parts.append(f"```text\n{docstring}\n```")
    rows = ["| module | in one sentence |", "| --- | --- |"]
    for path in sorted((PACKAGE / room).rglob("*.py")):
        name = path.relative_to(PACKAGE / room).as_posix()
        sentence = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0]
        if sentence and name != "__init__.py":
            rows.append(f"| `{name}` | {_cell(sentence)} |")
    parts += [
        "\n".join(rows),
        f"Names for users: [metalforge.{room}](../../reference/api/{room}.md). The whole house: "
        "[architecture](../architecture.md).",
    ]
    return "\n\n".join(parts) + "\n"


@cache
def _rooms_of_architecture() -> dict[str, str]:
    table = re.findall(r"^\| `(\w+)/` \| (.*) \|$", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    return dict(table)


def _room_line(room: str) -> str:
    return _rooms_of_architecture()[room]
