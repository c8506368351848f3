"""Wrong command lines: values for every option of every verb, and lines with several things wrong."""

import pytest

from .wrong_lines import BASES, WRONG, House, Parameter, Verb, at_random, one_by_one, spelled, verbs

# Lines that take long are interrupted, sometimes within a finaliser, which cannot raise.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

VERBS = verbs()
SHORT = 100
VALUES = 6
"""How many of its wrong values each option is given."""


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    return House(tmp_path_factory.mktemp("lines"))


@pytest.fixture
def called(house, undrawn):
    def attack(lines):
        """Call lines, with whether each is certain to be wrong; return the faults."""
        return [found for line, certain in lines if (found := house.attack(line, certain)).fault]

    return attack


def each_parameter(verb):
    """Give attacks on every parameter of a verb; they count from another value for each option."""
    for first, parameter in enumerate(verb.parameters):
        attacks = one_by_one(verb, parameter)
        yield from [attacks[(first + number) % len(attacks)] for number in range(min(VALUES, len(attacks)))]


def test_the_lines_to_begin_with_are_of_verbs_and_options_that_exist():
    known = {" ".join(verb.words): {parameter.name for parameter in verb.parameters} for verb in VERBS}
    assert [(words, name) for words, base in BASES.items() for name in base if name not in known.get(words, ())] == []
    assert len(known) >= 28
    assert sum(map(len, known.values())) > 120


def test_a_new_verb_is_attacked_without_a_line_of_its_own():
    verb = Verb(("new",), (Parameter("depth", "--depth", int, 1, False), Parameter("file", "", str, 1, True)))
    lines = [line for line, _ in one_by_one(verb, verb.parameters[0])]
    assert lines == [("new", "--depth", text) for text in WRONG[int]]
    assert spelled(verb, {"depth": "1", "file": "x"}) == ("new", "x", "--depth", "1")


def test_the_harness_notices_what_it_looks_for(house, monkeypatch):
    """Each promise is broken once: a fault of ours, a wrong value that is taken, a file outside."""

    def broken(*arguments, **options):
        raise KeyError("a fault of ours")

    assert house.attack(("presets",), certain=True).fault == "taken for right"
    monkeypatch.setattr("metalforge.campaign.spec.preset", broken)
    assert house.attack(("scan", "--preset", "demo", "--print-spec")).fault == "ended with 70"
    outside = ("lattice", "generate", "--dims", "4", "4", "4", "2", "--trajectories", "1", "--trace", "../trace")
    assert house.attack(outside).fault == "wrote elsewhere"


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb.words))
def test_no_option_of_any_verb_takes_what_is_wrong_or_shows_a_traceback(verb, called):
    assert called(each_parameter(verb)) == []


@pytest.mark.parametrize("part", range(5))
def test_lines_with_several_things_wrong(part, called):
    assert called([(at_random(seed), False) for seed in range(SHORT * part, SHORT * (part + 1))]) == []
