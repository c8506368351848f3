"""Both ways between steerers and the community's generators, by what the two sides see."""

from types import SimpleNamespace

import numpy as np
import pytest

from metalforge.campaign.steerers import Gaps, GaussianProcess, GeneratorSteerer, SteererGenerator, Uniform
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
        points = [{"beta": LOW + 0.01 * (self.given + i), "mass": 0.1} for i in range(num_points or 4)]
        self.given += len(points)
        return points

    def ingest(self, results):
        self.results += results


def vocs(**changes):
    return {"variables": {"beta": [LOW, HIGH]}, "objectives": {"chi": "MAXIMIZE"}} | changes


def test_a_steerer_suggests_and_ingests_as_a_generator():
    generator = SteererGenerator(Gaps(LOW, HIGH))
    assert generator.vocs["variables"] == {"beta": [LOW, HIGH]}
    assert generator.vocs["objectives"] == {"chi": "MAXIMIZE"}
    points = generator.suggest(3)
    assert [p["_id"] for p in points] == [0, 1, 2]
    assert [p["beta"] for p in points] == pytest.approx([5.7, 5.65, 5.75])
    # Suggested points are pending: the next one is another, with or without their results.
    assert generator.suggest()[0]["beta"] == pytest.approx(5.625)
    generator.ingest([result(points[1], 1.2)])
    assert [seen.value for seen in generator.steerer.state().observations] == [1.2]
    assert generator.suggest(1)[0]["beta"] == pytest.approx(5.675)
    # A point from elsewhere comes without an id.
    generator.ingest([result({"beta": 5.61}), result({"beta": 5.79})])
    assert {seen.id for seen in generator.steerer.state().observations} == {"suggested-1", "ingested-0", "ingested-1"}


def test_late_results_are_kept_after_finalize_but_nothing_more_is_suggested():
    generator = SteererGenerator(Uniform(LOW, HIGH))
    points = generator.suggest(1)
    generator.finalize()
    generator.ingest([result(points[0])])
    assert len(generator.steerer.state().observations) == 1
    with pytest.raises(ValueError, match="finalized"):
        generator.suggest(1)


def test_a_generator_over_a_told_steerer_goes_on_with_new_ids():
    steerer = Gaps(LOW, HIGH)
    first = SteererGenerator(steerer)
    first.ingest([result(p) for p in first.suggest(2)] + [result({"beta": 5.61})])
    second = SteererGenerator(steerer)
    points = second.suggest(2)
    assert [p["_id"] for p in points] == [2, 3]
    second.ingest([result(p) for p in points] + [result({"beta": 5.62})])
    assert len(steerer.state().observations) == 6


class Content(Gaps):
    """A steerer that never has more than one wish."""

    def ask(self, n=1, pending=()):
        return super().ask(1, pending)


def test_the_generator_answers_with_value_errors():
    generator = SteererGenerator(Content(LOW, HIGH))
    with pytest.raises(ValueError, match=r"5 points\. Got 1"):
        generator.suggest(5)
    point = generator.suggest(1)[0]
    assert point["_id"] == 0  # the refused ones left nothing pending
    with pytest.raises(ValueError, match=r"`_id`.*Got 7"):
        generator.ingest([result({"beta": 5.7, "_id": 7})])
    with pytest.raises(ValueError, match="Missing: chi, chi_error"):
        generator.ingest([point])
    with pytest.raises(SpecError, match=r"`value`.*`suggested-0`.*nan"):
        generator.ingest([result(point, float("nan"))])
    assert generator.steerer.state().observations == ()
    generator.ingest([])
    assert generator.steerer.state().observations == ()


def test_a_stranger_is_asked_and_told_as_a_steerer():
    stranger = Grid(vocs(constants={"mass": 0.1}))
    steerer = GeneratorSteerer(stranger)
    assert isinstance(steerer, Steerer)
    asked = steerer.ask(2)
    assert [s.beta for s in asked] == pytest.approx([5.6, 5.61])
    assert "Grid" in asked[0].reason
    assert steerer.ask(2) == asked  # nobody measures them yet: they are handed out again
    assert [s.beta for s in steerer.ask(2, [5.6])] == pytest.approx([5.61, 5.62])
    assert stranger.given == 3
    steerer.tell([Observation(beta=5.6, value=1.3, error=0.1, cost=5.0, id="a")])
    assert stranger.results == [{"beta": 5.6, "mass": 0.1, "chi": 1.3, "chi_error": 0.1, "cost": 5.0}]
    # More of the same chain cannot be passed on; a chain from elsewhere can.
    steerer.tell(
        [Observation(beta=5.6, value=1.4, error=0.1, id="a"), Observation(beta=5.77, value=1, error=0, id="b")]
    )
    assert [r["beta"] for r in stranger.results] == [5.6, 5.77]
    assert "_id" not in stranger.results[1]
    assert len(steerer.state().observations) == 2


def test_a_stranger_that_refuses_a_number_gives_what_it_can():
    stranger = Grid(vocs())
    steerer = GeneratorSteerer(stranger)
    assert len(steerer.ask(6)) == 4
    assert len(steerer.ask(6)) == 6  # the four nobody measures, and two more
    assert stranger.given == 6


def test_there_and_back_again_is_the_same_steerer():
    plain, wrapped = (GaussianProcess(LOW, HIGH, grid=81, paths=64) for _ in range(2))
    round_trip = GeneratorSteerer(SteererGenerator(wrapped))
    rng = np.random.default_rng(2)
    for i in range(9):
        one, other = plain.ask(1)[0].beta, round_trip.ask(1)[0].beta
        assert one == other
        seen = Observation(beta=one, value=float(1 + 0.1 * rng.normal()), error=0.1, id=f"suggested-{i}")
        plain.tell([seen])
        round_trip.tell([seen])
    assert [o.value for o in wrapped.state().observations] == [o.value for o in plain.state().observations]


def test_a_vocabulary_of_objects_is_read_too():
    class MaximizeObjective:
        pass

    class MinimizeObjective:
        pass

    variables = {"beta": SimpleNamespace(domain=[5.1, 5.2])}
    spoken = SimpleNamespace(variables=variables, objectives={"chi": MaximizeObjective()}, observables={"cost": None})
    assert GeneratorSteerer(Grid(spoken)).history.beta_max == 5.2
    spoken.objectives = {"chi": MinimizeObjective()}
    with pytest.raises(PluginError, match=r"Grid minimises"):
        GeneratorSteerer(Grid(spoken))


@pytest.mark.parametrize(
    "changes",
    [
        {"variables": {"beta": [LOW, HIGH], "mass": [0.0, 1.0]}},
        {"variables": {"x": [LOW, HIGH]}},
        {"objectives": {"f": "MAXIMIZE"}},
        {"constraints": {"c": ["LESS_THAN", 0.0]}},
        {"observables": ["energy"]},
    ],
)
def test_a_vocabulary_that_wants_something_else_is_refused(changes):
    with pytest.raises(PluginError, match=r"variable beta.*objective chi"):
        GeneratorSteerer(Grid(vocs(**changes)))


def test_what_is_no_generator_is_refused():
    with pytest.raises(PluginError, match=r"`suggest`.*object"):
        GeneratorSteerer(object())
    silent = Grid(None)
    with pytest.raises(SpecError, match=r"`vocs`.*range"):
        GeneratorSteerer(silent)
    assert GeneratorSteerer(silent, beta_min=LOW, beta_max=HIGH).ask(1)[0].beta == LOW
    outside = GeneratorSteerer(Grid(None), beta_min=5.7, beta_max=HIGH)
    with pytest.raises(PluginError, match=r"Grid.*`beta`.*Got 5\.6"):
        outside.ask(1)
