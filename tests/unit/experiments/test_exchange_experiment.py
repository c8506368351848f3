"""The study of exchange: three ways of the same work, crossings along replicas, every figure of every way."""

import numpy as np

from experiments.exchange import HEAD, PLACES, QUICK, WAYS, recipe_of, run, seen
from experiments.protocol import Settings, quiet, rows_of


def test_the_ways_spend_the_same_work_on_streams_of_their_own():
    recipes = [recipe_of(PLACES[0], way, repeat, 1) for way in WAYS for repeat in range(3)]
    spans = [range(r.stream, r.stream + len(r.betas)) for r in recipes]
    assert len({stream for span in spans for stream in span}) == sum(map(len, spans))
    assert {(len(r.betas), r.updates) for r in recipes} == {(PLACES[0].couplings, PLACES[0].updates)}
    assert set(recipes[0].betas) == {PLACES[0].beta}
    assert recipes[3].betas == recipes[6].betas
    assert [r.exchange for r in recipes] == [False] * 6 + [True] * 3


def test_crossings_are_counted_along_replicas():
    recipe = recipe_of(QUICK[0], "exchange", 0, 1)
    rows = np.arange(400)
    # Two replicas in different phases swap their couplings in every row: nobody crosses. The third crosses four times.
    swapped = np.stack([rows % 2, 1 - rows % 2, np.full(400, 2)], axis=1).astype(float)
    loop = np.where(swapped == 0, 0.1, 0.4)
    loop[:, 2] = np.where(rows // 80 % 2, 0.4, 0.1)
    made = {
        "plaquette": 0.4 + 0.1 * loop,
        "polyakov_re": loop,
        "polyakov_im": np.zeros_like(loop),
        "replica": swapped,
        "seconds": np.array([2.0]),
    }
    found = seen(recipe, made, 0.2, 0.3)
    assert (found.crossings, found.seconds, found.updates) == (4, 2.0, 1200)


def test_a_quick_run_gives_every_figure_of_every_way(tmp_path, monkeypatch):
    monkeypatch.setenv("METALFORGE_CACHE", str(tmp_path))
    result = run(Settings(quick=True), quiet)
    assert [line[1] for line in result.lines[1:]] == list(WAYS)
    assert {len(line) for line in result.lines} == {len(HEAD)}
    crossings = rows_of(result.rows, metric="crossings / 1,000 updates")
    assert all(row.value > 0 for row in crossings)
    trips = {row.approach: row.value for row in rows_of(result.rows, metric="round trips / CPU s")}
    assert trips["exchange"] > 0 == trips["at the peak"] == trips["side by side"]
    again = run(Settings(quick=True), quiet)  # from the cache, CPU seconds included
    assert again.rows == result.rows
