"""HTML without surprises: every text is escaped here, once, and the page needs nothing from outside."""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple

CSS = "\n" + files(__package__).joinpath("page.css").read_text()
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""What a browser may do for a page: show pictures that are in it, in its own style, and nothing else."""
READABLE, LARGEST = 0.6, 1.25
"""A figure is shown at no less than this part of its own width, so that its labels of 9 to 10 points stay above 7
pixels (on a narrower screen it scrolls), and at no more than this multiple."""
LONG = 40
"""Characters from which a cell gets a column wide enough for whole phrases."""


class Raw(NamedTuple):
    """HTML that this package wrote itself, and that is not escaped again."""

    html: str


def text_of(value: object) -> str:
    """Return a value as HTML: escaped, unless it is `Raw`."""
    return value.html if isinstance(value, Raw) else escape(str(value))


def document(title: str, body: Iterable[str]) -> str:
    """Return a whole page."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def section(title: str, *parts: str, anchor: str = "") -> str:
    """Return a section, which links to `#anchor` lead to; without parts there is none."""
    inside = "\n".join(part for part in parts if part)
    name = f' id="{escape(anchor)}"' if anchor else ""
    return f"<section{name}>\n<h2>{escape(title)}</h2>\n{inside}\n</section>" if inside else ""


def heading(title: str, *parts: str) -> str:
    """Return a part of a section."""
    return f"<h3>{escape(title)}</h3>\n" + "\n".join(parts)


def titled(title: str, about: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *more: str) -> str:
    """Return a part of a section: a note, a table and more; without rows there is none."""
    return heading(title, note(about), table(columns, rows), *more) if rows else ""


def paragraph(value: object, kind: str = "") -> str:
    """Return a paragraph."""
    return f'<p class="{kind}">{text_of(value)}</p>' if kind else f"<p>{text_of(value)}</p>"


def note(value: object) -> str:
    """Return a quiet paragraph."""
    return paragraph(value, "note")


def box(*parts: str) -> str:
    """Return parts with a warning's colours."""
    return '<div class="warn">' + "\n".join(parts) + "</div>"


def items(values: Sequence[object]) -> str:
    """Return a list with a dot before each."""
    return "<ul>" + "".join(f"<li>{text_of(value)}</li>" for value in values) + "</ul>" if values else ""


def link(text: str, address: str, *, save_as: str = "") -> Raw:
    """Return a link; with `save_as` a browser saves what it leads to under this name."""
    save = f' download="{escape(save_as)}"' if save_as else ""
    return Raw(f'<a href="{escape(address)}"{save}>{escape(text)}</a>')


def data_address(data: bytes, kind: str) -> str:
    """Return an address that holds the data themselves."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def card(value: object, label: str) -> str:
    """Return a number with what it is."""
    return f'<div class="card"><b>{text_of(value)}</b><span>{escape(label)}</span></div>'


def bar(share: float) -> Raw:
    """Return a bar for a share of one."""
    return Raw(f'<div style="width: {100 * min(max(share, 0.0), 1.0):.1f}%"></div>')


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table; a column whose name begins with ``>`` is set right, one with ``=`` holds bars."""
    if not rows:
        return ""
    kinds = [{">": ' class="n"', "=": ' class="bar"'}.get(name[:1], "") for name in columns]
    names = [name[1:] if kind else name for kind, name in zip(kinds, columns, strict=True)]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, names, strict=True))
    lines = []
    for row in rows:
        cells = "".join(_cell(kind, value) for kind, value in zip(kinds, row, strict=True))
        lines.append(f"<tr>{cells}</tr>")
    top = f"<thead><tr>{head}</tr></thead>\n" if any(names) else ""
    return f'<div class="wide"><table>\n{top}<tbody>\n' + "\n".join(lines) + "\n</tbody></table></div>"


def _cell(kind: str, value: object) -> str:
    text = text_of(value)
    phrase = ' class="long"' if len(text) >= LONG else ""
    return f"<td{kind or phrase}>{text}</td>"


def details(summary: str, inside: str) -> str:
    """Return something that opens on a click."""
    return f"<details><summary>{escape(summary)}</summary>\n{inside}\n</details>" if inside else ""


def listing(value: str) -> str:
    """Return text as it is."""
    return f"<pre>{escape(value)}</pre>"


def image(svg: bytes, inches: float, title: str, caption: str) -> str:
    """Return a figure of a width that is part of the page: an SVG in its address, between legible and too large."""
    style = f"min-width: {READABLE * 96 * inches:.0f}px; max-width: {LARGEST * 96 * inches:.0f}px"
    source = data_address(svg, "image/svg+xml")
    shown = f'<div class="wide"><img alt="{escape(title)}" style="{style}" src="{source}"></div>'
    return f"<figure>{shown}<figcaption>{escape(caption)}</figcaption></figure>"
