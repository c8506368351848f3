"""Recorded data that other packages carry (extra `data`): labelled series in aeon, the Santa Fe laser in reservoirpy.

Nothing is copied here or fetched: files are read where the package is installed, without importing it.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.core.arrays import Doubles
from metalforge.core.errors import PluginError, SpecError, find

ARCHIVE = ("aeon", "datasets/data")
LASER = ("reservoirpy", "datasets/santafe_laser.npy")


class Recorded(NamedTuple):
    """Series (T_i, inputs) with a label each, as those who recorded them split them for training and testing."""

    train: list[Doubles]
    train_labels: NDArray[np.str_]
    test: list[Doubles]
    test_labels: NDArray[np.str_]


def installed(package: str) -> bool:
    """Return whether a package that carries data is there; it is not imported."""
    return find_spec(package) is not None


def recorded_names() -> tuple[str, ...]:
    """Return the names of labelled sets that `recorded` gives; none where aeon is not installed."""
    return tuple(sorted(_archive())) if installed(ARCHIVE[0]) else ()


def recorded(name: str) -> Recorded:
    """Return a set of labelled series by its name in the archive: JapaneseVowels, GunPoint, ...

    Lengths may differ; nothing is padded, scaled or shuffled.
    """
    folder = find("recorded data set", name, _archive())
    (train, labels), (test, wanted) = map(_read, _parts(folder))
    return Recorded(train, labels, test, wanted)


def santa_fe_laser() -> Doubles:
    """Return the intensity of a far-infrared laser in its chaotic state, 10,093 whole numbers up to 255, as (T, 1).

    Set A of the Santa Fe competition with its continuation (U. Huebner, N. Abraham, C. Weiss, Physical Review A 40,
    1989).
    """
    series = np.load(_file(*LASER), allow_pickle=False)
    return np.asarray(series, np.float64).reshape(-1, 1)


def _archive() -> dict[str, Path]:
    """Folders of sets whose series have classes, by name."""
    return {f.name: f for f in _file(*ARCHIVE).iterdir() if all(_has_classes(file) for file in _parts(f))}


def _parts(folder: Path) -> list[Path]:
    return [folder / f"{folder.name}_{part}.ts" for part in ("TRAIN", "TEST")]


def _has_classes(path: Path) -> bool:
    """Whether there is such a file, and says that it has classes: a few sets have numbers in their place."""
    if not path.is_file():
        return False
    with path.open(encoding="utf-8") as lines:
        said = takewhile(lambda line: line.strip().lower() != "@data", lines)
        return any(line.lower().startswith("@classlabel true") for line in said)


def _file(package: str, path: str) -> Path:
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise PluginError(f"this data comes with the package {package}\nhint: pip install 'metalforge[data]'")
    file = Path(found.submodule_search_locations[0], path)
    if not file.exists():
        raise PluginError(f"the installed {package} does not carry {path}\nhint: pip install 'metalforge[data]'")
    return file


def _read(path: Path) -> tuple[list[Doubles], NDArray[np.str_]]:
    """Read the archive's text format: after `@data`, a line per series, its channels and its label between colons."""
    series, labels = [], []
    for number, line in _data_lines(path):
        *channels, label = line.split(":")
        try:
            values = np.array([channel.split(",") for channel in channels], np.float64)
        except ValueError as error:
            raise SpecError(f"{path.name}, line {number}: wanted channels of equally many numbers ({error})") from error
        series.append(np.ascontiguousarray(values.T))
        labels.append(label)
    return series, np.array(labels)


def _data_lines(path: Path) -> Iterator[tuple[int, str]]:
    began = False
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        text = line.strip()
        if began and text and not text.startswith("#"):
            yield number, text
        began |= text.lower() == "@data"
