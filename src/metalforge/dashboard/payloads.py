"""What goes to the page, as JSON: a line of the table, the state, decisions, a chain thinned, and the transition."""

import time
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign import (
    Results,
    SystemView,
    View,
    compared_campaign,
    decision_view,
    duration,
    found_text,
    histogram_edges,
    memory_of,
    needed_text,
    number_text,
    one_line,
    pipeline_figure,
    silicon_figure,
    supports_of,
    system_text,
    view_of,
)
from metalforge.core import MetalforgeError, SpecError

from .following import Followed

MOST_DECISIONS = 1000
"""Decisions of a page, the last ones: the journal has all, and the time bar leads to each."""
MOST_DOTS = 800
"""Bins of a history: in each the smallest and the largest value are kept, so that no jump is lost."""
MINUTE_S = 60.0
SPARKS = 60
"""Estimates in the small line of the table."""


def encoded(value: object) -> bytes:
    """Return JSON; arrays are lists, and numbers that are not finite are null."""
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"no JSON for {type(value)}")


def campaign_line(followed: Followed, number: int) -> dict[str, Any]:
    """Return the line of a campaign in the table, or what is wrong with it.

    `spark` are the last estimates of the first system: of what is located, or of a curve its errors.
    """
    line: dict[str, Any] = {
        "campaign": number,
        "directory": str(followed.directory),
        "problem": one_line(followed.problem),
        "records": followed.records,
    }
    try:
        state = followed.state
    except MetalforgeError:
        blank = dict.fromkeys(("status", "ending", "found", "left"), "")
        return line | blank | {"name": followed.directory.name, "established": False, "silicon": (), "spark": ()}
    view = view_of(state, time.time(), last_decisions=0)
    first = view.systems[0]
    estimates = [e for e in state.estimates if e.system == first.system]
    spark = [value for e in estimates if (value := e.error if view.target == "curve" else e.result) is not None]
    return line | {
        "name": view.name,
        "status": view.status,
        "ending": one_line(view.ending),
        "found": _found_text(view, first),
        "established": first.established,
        "left": "" if view.left_s is None else duration(view.left_s),
        "silicon": view.substrates,
        "spark": spark[-SPARKS:],
    }


def _found_text(view: View, volume: SystemView) -> str:
    """Return what is found of a system, by name; nothing where nothing is."""
    if volume.error is None:
        return ""
    peak = view.target == "peak"
    found = f"{view.words.found} = {number_text(volume.result, volume.error)}" if peak else volume.reason
    return found + view.after_text(volume)


def state_sent(followed: Followed, now: float | None = None) -> dict[str, Any]:
    """Return the state of a campaign after `at` records, by the clock or at the time of its last record (`clock`)."""
    state = followed.state
    view = view_of(state, state.last_at if now is None else now, last_decisions=0)
    return {
        "at": followed.records,
        "rows_at": followed.rows_at,
        "decided": len(followed.decided),
        "problem": one_line(followed.problem),
        "clock": state.last_at,
        "elapsed": duration(view.elapsed_s),
        "left": "" if view.left_s is None else duration(view.left_s),
        "view": view,
        "systems": [_system_line(view, system) for system in view.systems],
        "energy": [entry for _, entry in sorted(state.energy.items())],
    }


def _system_line(view: View, system: SystemView) -> dict[str, Any]:
    """Return what is found of one system in words, with its evidence; `found` is empty where nothing is."""
    return {
        "system": system_text(system.system),
        "found": _found_text(view, system),
        "established": system.established,
        "reason": system.reason,
        "evidence": [
            {"name": item.name, "holds": item.holds, "found": found_text(item), "needed": needed_text(item)}
            for item in system.evidence
        ],
    }


def state_now(followed: Followed) -> dict[str, Any]:
    """Return the state of a campaign that is followed, by the clock."""
    return state_sent(followed, time.time())


def decisions_sent(followed: Followed) -> list[dict[str, Any]]:
    """Return the last decisions, in the order of the journal; `at` is the number of records up to each."""
    return [
        {"at": at, **msgspec.structs.asdict(decision_view(record, followed.state))}
        for at, record in followed.decided[-MOST_DECISIONS:]
    ]


def chain_sent(followed: Followed, name: str) -> dict[str, Any]:
    """Return one chain: histories as lists of (update, smallest, largest), and the other figures of it.

    `labels` are what the two histories are of, `order` is the order parameter in words.
    """
    chain = followed.state.chains.get(name)
    if chain is None:
        raise SpecError(f"there is no chain `{name[:40]}` in this campaign, or not yet")
    shown = followed.state.spec.theory.report.history(followed.state, chain)
    order = shown.measured
    edges = histogram_edges(order) if order.size > 1 else np.zeros(0)
    return {
        "chain": name,
        "coordinate": chain.coordinate,
        "system": system_text(chain.system),
        "updates": chain.rows,
        "warmup": chain.warmup,
        "first": thinned(shown.series[0]),
        "second": thinned(shown.series[1]),
        "labels": shown.labels,
        "order": shown.order,
        "edges": edges,
        "density": np.histogram(order, edges, density=True)[0] if edges.size else [],
        "plane": shown.plane,
        "memory": memory_of(order),
    }


def thinned(values: NDArray[np.float64], most: int = MOST_DOTS) -> tuple[list[Any], list[Any], list[Any]]:
    """Return first updates, smallest and largest values of at most `most` bins."""
    if not values.size:
        return [], [], []
    first = np.arange(0, values.size, -(-values.size // most))
    low, high = np.minimum.reduceat(values, first), np.maximum.reduceat(values, first)
    return first.tolist(), low.tolist(), high.tolist()


def machine_sent(followed: Followed, last_minute: bool = False) -> dict[str, Any]:
    """Return how the graph does, and when silicon worked: in all, or in the last minute."""
    state = followed.state
    return {
        "at": followed.records,
        "pipeline": pipeline_figure(state),
        "silicon": silicon_figure(state, MINUTE_S if last_minute else None),
    }


def transition_sent(followed: Followed) -> dict[str, Any]:
    """Return the transition as the report has it, and what its peaks rest on.

    It takes seconds of work, so that it is asked of another process.
    """
    shown = Results(followed.state)
    campaign = msgspec.structs.asdict(compared_campaign(shown))
    return {"at": followed.records, "support": supports_of(shown.found), **campaign}
