"""HTML without surprises: every text is escaped here, once, and the page needs nothing from outside."""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

__all__ = [
    "Raw",
    "bar",
    "card",
    "details",
    "document",
    "heading",
    "image",
    "listing",
    "note",
    "paragraph",
    "section",
    "table",
]

CSS = """
:root { --ink: #1d2228; --soft: #5c6670; --line: #dfe3e8; --paper: #ffffff; --tint: #f5f7f9; --accent: #0072b2; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--tint); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 2rem 4rem; background: var(--paper);
  box-shadow: 0 0 2rem rgba(20, 30, 40, .06); }
header p.kind { margin: 0; color: var(--soft); letter-spacing: .04em; }
h1 { margin: .1rem 0 .3rem; font-size: 2.5rem; line-height: 1.15; font-weight: 650; }
h1 .value { color: var(--accent); white-space: nowrap; }
h2 { margin: 2.8rem 0 .8rem; padding-bottom: .3rem; border-bottom: 2px solid var(--line); font-size: 1.35rem; }
h3 { margin: 1.8rem 0 .4rem; font-size: 1.05rem; }
p { margin: .5rem 0 .9rem; }
.note { color: var(--soft); font-size: .92rem; }
.warn { background: #fff6e5; border-left: 4px solid #e69f00; padding: .6rem .9rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem; margin: 1.4rem 0; }
.card { background: var(--tint); border-radius: .5rem; padding: .7rem .9rem; }
.card b { display: block; font-size: 1.25rem; font-weight: 600; }
.card span { color: var(--soft); font-size: .86rem; }
figure { margin: 1.2rem 0 1.8rem; }
figure img { display: block; width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; min-width: 55%; font-size: .88rem; font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--soft); font-weight: 600; border-bottom: 1.5px solid var(--line);
  padding: .35rem .6rem .35rem 0; vertical-align: bottom; }
td { border-bottom: 1px solid var(--line); padding: .32rem .6rem .32rem 0; vertical-align: top; }
th.n, td.n { text-align: right; padding-right: 1.1rem; white-space: nowrap; }
td.bar div { height: .7rem; margin-top: .4rem; background: var(--accent); border-radius: .2rem; min-width: 1px; }
td.bar { width: 11rem; }
pre { background: var(--tint); border-radius: .5rem; padding: .9rem 1rem; overflow-x: auto; font-size: .82rem;
  line-height: 1.45; }
code { font-size: .9em; overflow-wrap: anywhere; }
details { margin: .8rem 0; }
summary { cursor: pointer; color: var(--accent); }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media print { body { background: none; } main { box-shadow: none; max-width: none; padding: 0; }
  figure, tr { break-inside: avoid; } }
"""


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
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """Return a section; without parts there is none."""
    inside = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{escape(title)}</h2>\n{inside}\n</section>" if inside else ""


def heading(title: str, *parts: str) -> str:
    """Return a part of a section."""
    return f"<h3>{escape(title)}</h3>\n" + "\n".join(parts)


def paragraph(value: object, kind: str = "") -> str:
    """Return a paragraph."""
    return f'<p class="{kind}">{text_of(value)}</p>' if kind else f"<p>{text_of(value)}</p>"


def note(value: object) -> str:
    """Return a quiet paragraph."""
    return paragraph(value, "note")


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
        cells = "".join(f"<td{kind}>{text_of(value)}</td>" for kind, value in zip(kinds, row, strict=True))
        lines.append(f"<tr>{cells}</tr>")
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def details(summary: str, inside: str) -> str:
    """Return something that opens on a click."""
    return f"<details><summary>{escape(summary)}</summary>\n{inside}\n</details>" if inside else ""


def listing(value: str) -> str:
    """Return text as it is."""
    return f"<pre>{escape(value)}</pre>"


def image(svg: bytes, title: str, caption: str) -> str:
    """Return a figure that is part of the page: an SVG in its address."""
    data = base64.b64encode(svg).decode()
    source = f"data:image/svg+xml;base64,{data}"
    return f'<figure><img alt="{escape(title)}" src="{source}"><figcaption>{escape(caption)}</figcaption></figure>'
