"""The community's generators as steerers, by what the two sides see."""

from types import SimpleNamespace

import pytest

from metalforge.campaign.steerers import GeneratorSteerer
from metalforge.core.errors import PluginError, SpecError
from metalforge.core.steering import Observation, Steerer

LOW, HIGH = 5.6, 5.8


def result(point, chi=1.0):
    return point | {"chi": chi, "chi_error": 0.1, "cost": 20.0}


class Grid:
    """A stranger's generator: no ids, an endless grid, and no more than four points at once."""

    def __init__(self, vocs):
        self.vocs = vocs
        self.results = []
        self.given = 0

    def suggest(self, num_points=None):
        if num_points is not None and num_points > 4:
            raise ValueError("at most four")
        points = [{"coordinate": LOW + 0.01 * (self.given + i), "mass": 0.1} for i in range(num_points or 4)]
        self.given += len(points)
        return points

    def ingest(self, results):
        self.results += results


def vocs(**changes):
    return {"variables": {"coordinate": [LOW, HIGH]}, "objectives": {"chi": "MAXIMIZE"}} | changes


def test_a_stranger_is_asked_and_told_as_a_steerer():
    stranger = Grid(vocs(constants={"mass": 0.1}))
    steerer = GeneratorSteerer(stranger)
    assert isinstance(steerer, Steerer)
    asked = steerer.ask(2)
    assert [s.coordinate for s in asked] == pytest.approx([5.6, 5.61])
    assert "Grid" in asked[0].reason
    assert steerer.ask(2) == asked  # nobody measures them yet: they are handed out again
    assert [s.coordinate for s in steerer.ask(2, [5.6])] == pytest.approx([5.61, 5.62])
    assert stranger.given == 3
    steerer.tell([Observation(coordinate=5.6, value=1.3, error=0.1, cost=5.0, id="a")])
    assert stranger.results == [{"coordinate": 5.6, "mass": 0.1, "chi": 1.3, "chi_error": 0.1, "cost": 5.0}]
    # More of the same chain cannot be passed on; a chain from elsewhere can.
    steerer.tell(
        [
            Observation(coordinate=5.6, value=1.4, error=0.1, id="a"),
            Observation(coordinate=5.77, value=1, error=0, id="b"),
        ]
    )
    assert [r["coordinate"] for r in stranger.results] == [5.6, 5.77]
    assert "_id" not in stranger.results[1]
    assert len(steerer.state().observations) == 2


def test_a_stranger_that_refuses_a_number_gives_what_it_can():
    stranger = Grid(vocs())
    steerer = GeneratorSteerer(stranger)
    assert len(steerer.ask(6)) == 4
    assert len(steerer.ask(6)) == 6  # the four nobody measures, and two more
    assert stranger.given == 6


def test_a_vocabulary_of_objects_is_read_too():
    class MaximizeObjective:
        pass

    class MinimizeObjective:
        pass

    variables = {"coordinate": SimpleNamespace(domain=[5.1, 5.2])}
    spoken = SimpleNamespace(variables=variables, objectives={"chi": MaximizeObjective()}, observables={"cost": None})
    assert GeneratorSteerer(Grid(spoken)).history.high == 5.2
    spoken.objectives = {"chi": MinimizeObjective()}
    with pytest.raises(PluginError, match=r"Grid minimises"):
        GeneratorSteerer(Grid(spoken))


@pytest.mark.parametrize(
    "changes",
    [
        {"variables": {"coordinate": [LOW, HIGH], "mass": [0.0, 1.0]}},
        {"variables": {"x": [LOW, HIGH]}},
        {"objectives": {"f": "MAXIMIZE"}},
        {"constraints": {"c": ["LESS_THAN", 0.0]}},
        {"observables": ["energy"]},
    ],
)
def test_a_vocabulary_that_wants_something_else_is_refused(changes):
    with pytest.raises(PluginError, match=r"variable coordinate.*objective chi"):
        GeneratorSteerer(Grid(vocs(**changes)))


def test_what_is_no_generator_is_refused():
    with pytest.raises(PluginError, match=r"`suggest`.*object"):
        GeneratorSteerer(object())
    silent = Grid(None)
    with pytest.raises(SpecError, match=r"`vocs`.*range"):
        GeneratorSteerer(silent)
    assert GeneratorSteerer(silent, low=LOW, high=HIGH).ask(1)[0].coordinate == LOW
    outside = GeneratorSteerer(Grid(None), low=5.7, high=HIGH)
    with pytest.raises(PluginError, match=r"Grid.*`coordinate`.*Got 5\.6"):
        outside.ask(1)
