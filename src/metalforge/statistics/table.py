"""Columns to and from text: CSV that spreadsheets, R and gnuplot read, and other codes' tables read back.

Floats are written with the digits that bring back the same number.
"""

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError

from .estimate import Floats

__all__ = ["read_csv", "write_csv"]

Column: TypeAlias = "Floats | NDArray[np.int64] | Sequence[float] | Sequence[int] | Sequence[str]"
ReadColumn: TypeAlias = "Floats | NDArray[np.int64] | list[str]"


def write_csv(path: str | os.PathLike[str], columns: Mapping[str, Column], *, comment: str = "") -> Path:
    """Write `columns` (name to values, all of one length) under a header line and return the path.

    Lines of `comment` go first, each behind ``# ``: the place for beta, volume, cut and version. The file appears
    complete or not at all.
    """
    target = Path(path)
    names = list(columns)
    rows = [np.asarray(columns[name]) for name in names]
    if not names or any(not name or name.startswith("#") or "\n" in name for name in names):
        raise SpecError(f"`columns` must have at least one name, none empty or starting with `#`. Got {names}")
    lengths = {name: column.shape for name, column in zip(names, rows, strict=True)}
    if any(column.ndim != 1 for column in rows) or len({column.size for column in rows}) > 1:
        raise SpecError(f"`columns` must be one-dimensional and of one length. Got shapes {lengths}")
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8", newline="") as file:
            file.writelines(f"# {line}\n" for line in comment.splitlines())
            # `tolist` gives Python numbers, whose repr is the shortest text that reads back exactly.
            csv.writer(file, lineterminator="\n").writerows([names, *zip(*(c.tolist() for c in rows), strict=True)])
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target


def read_csv(path: str | os.PathLike[str]) -> dict[str, ReadColumn]:
    """Return the columns of a text table: int64 or float64 arrays where every entry is a number, else lists of str.

    Commas, semicolons, tabs or blanks separate; lines that start with ``#`` are comments. Without a header line (a
    first line that is all numbers) the columns are named ``c0``, ``c1``, ...
    """
    text = Path(path).read_text(encoding="utf-8-sig")
    lines = [line for raw in text.splitlines() if (line := raw.strip()) and not line.startswith("#")]
    if not lines:
        raise SpecError(f"`{path}` must hold a table. Got no lines besides blanks and comments")
    separator = next((mark for mark in (",", ";", "\t") if mark in lines[0]), None)
    rows = [line.split() for line in lines] if separator is None else list(csv.reader(lines, delimiter=separator))
    rows = [[cell.strip() for cell in row] for row in rows]
    headed = not all(_is_number(cell) for cell in rows[0])
    names = rows[0] if headed else [f"c{i}" for i in range(len(rows[0]))]
    body = rows[1:] if headed else rows
    if len(set(names)) != len(names):
        raise SpecError(f"`{path}` must have different column names. Got {names}")
    for number, row in enumerate(body, start=1):
        if len(row) != len(names):
            raise SpecError(f"row {number} of `{path}` must have {len(names)} entries. Got {len(row)}: {row}")
    return {name: _parsed([row[i] for row in body]) for i, name in enumerate(names)}


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _parsed(cells: list[str]) -> ReadColumn:
    try:
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    except (ValueError, OverflowError):
        pass
    return np.array([float(cell) for cell in cells]) if all(map(_is_number, cells)) else cells
