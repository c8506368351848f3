"""Campaigns, their cluster and their page serve any theory: they have no words of one, and no names of kernels.

That they import none of it is a contract of import-linter (pyproject.toml).
"""

import re
from importlib.resources import files

import pytest

TEXTS = (".css", ".html", ".js", ".py", ".sh", ".toml", ".yaml")
PHYSICS = {
    *("beta", "betas", "beta_c", "dims", "lattice", "lattices", "particle", "particles", "plaquette", "plaquettes"),
    *("plasma", "polyakov", "quark", "quarks", "gamma", "gamma_m", "n_t", "n_s", "su3"),
    *("hmc", "cg", "quenched", "deconfinement", "crystal", "melted"),
}
STATISTICS = re.compile(r"gamma[-_ ]method|statistics\.gamma\b", re.IGNORECASE)
"""The Gamma method for errors of correlated series, which serves every theory."""
KERNELS = re.compile(r"native\.cuda|\bCuda[A-Z]|\bFp64|\bnvrtc\b|family_of|\"(fma|hybrid|concurrent|f64pair)\"")
WORD = re.compile(r"[A-Za-z0-9_]+")


def texts(package):
    """Give the text files of a package by their place in it."""
    folders = [(package, files(f"metalforge.{package}"))]
    while folders:
        place, folder = folders.pop()
        for entry in folder.iterdir():
            if entry.is_dir():
                folders.append((f"{place}/{entry.name}", entry))
            elif entry.name.endswith(TEXTS):
                yield f"{place}/{entry.name}", entry.read_text()


def words_of(text):
    """Return the words of a text as they stand, and the parts of names."""
    found = {word.lower() for word in WORD.findall(STATISTICS.sub("", text))}
    return found | {part for word in found for part in word.split("_")}


@pytest.mark.parametrize("package", ["campaign", "cluster", "dashboard"])
def test_no_word_of_a_theory_stands_there(package):
    found = {name: words_of(text) & PHYSICS for name, text in texts(package)}
    assert len(found) > 5
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize("package", ["campaign", "cluster", "dashboard", "lattice", "plasma", "cli", "conductor"])
def test_no_name_of_a_kernel_stands_outside_native_and_substrates(package):
    found = {name: KERNELS.findall(text) for name, text in texts(package)}
    assert {name: names for name, names in found.items() if names} == {}


def test_the_words_are_found_where_they_belong():
    assert words_of("x = chain.beta_c[n_t]") >= {"beta", "beta_c", "n_t"}
    assert words_of("gamma_method(x)  # Gamma-method errors, metalforge.statistics.gamma").isdisjoint(PHYSICS)
    lattice, plasma = (set().union(*(words_of(text) for _, text in texts(name))) for name in ("lattice", "plasma"))
    assert {"plaquette", "beta", "hmc", "cg", "quenched", "deconfinement"} <= lattice
    assert {"gamma", "crystal", "melted"} <= plasma
    assert KERNELS.search("from metalforge.native.cuda.card import CardLimits")
