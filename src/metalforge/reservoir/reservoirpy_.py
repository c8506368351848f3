"""Networks of the package reservoirpy (0.4 and later), read from its nodes; the package itself is not imported."""

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
from scipy.sparse import csr_array, issparse

from metalforge.core import Doubles, SpecError

from .activations import ACTIVATIONS
from .weights import EsnWeights

READOUTS = ("Ridge", "RLS", "LMS")


def is_reservoirpy(source: object) -> TypeGuard[Any]:
    """Whether something is a node or a model of reservoirpy."""
    return type(source).__module__.partition(".")[0] == "reservoirpy"


def from_reservoirpy(model: Any) -> EsnWeights:
    """Return the network of a `Reservoir` node, or of a model of one and a linear readout, fitted or run before.

    The readout (Ridge, RLS or LMS) may see the inputs as well: ``[input, reservoir] >> readout``. What else a model may
    have has no place here and is refused by name: feedback, several reservoirs, a leak for each unit.
    """
    if not is_reservoirpy(model):
        raise SpecError(f"a node or a model of reservoirpy is wanted. Got {type(model).__name__}")
    nodes = list(getattr(model, "nodes", [model]))
    of = {kind: [node for node in nodes if type(node).__name__ in kinds] for kind, kinds in _KINDS.items()}
    strange = [type(node).__name__ for node in nodes if not any(node in found for found in of.values())]
    if strange or len(of["reservoir"]) != 1 or len(of["readout"]) > 1:
        raise SpecError(
            f"a model of reservoirpy must be one Reservoir and at most one readout ({', '.join(READOUTS)}). "
            f"Got {', '.join(type(node).__name__ for node in nodes)}"
        )
    if not all(getattr(node, "initialized", False) for node in nodes):
        raise SpecError("this model of reservoirpy has no weights yet\nhint: fit it, or run it once")
    edges = getattr(model, "edges", ())
    if any(delay for _, delay, *_ in edges):
        raise SpecError("feedback of reservoirpy, with a delay between nodes, is not supported")
    (reservoir,) = of["reservoir"]
    network = _reservoir(reservoir)
    if not of["readout"]:
        return network
    (readout,) = of["readout"]
    return _with_readout(network, readout, [first for first, _, last in edges if last is readout], reservoir)


_KINDS = {"input": ("Input", "Output"), "reservoir": ("Reservoir",), "readout": READOUTS}


def _reservoir(node: Any) -> EsnWeights:
    leak = np.unique(_dense(node.lr))
    name: Any = getattr(node.activation, "__name__", type(node.activation).__name__)
    if leak.size != 1:
        raise SpecError("`lr` of a reservoir must be one number. Got one for each unit")
    if name not in ACTIVATIONS or not _its_own(node.activation):
        raise SpecError(f"activation `{name}` of a reservoir is not supported; supported: {', '.join(ACTIVATIONS)}")
    w_in = np.atleast_2d(_dense(node.Win))
    return EsnWeights(
        w_in=w_in,
        w_res=csr_array(node.W).astype(np.float64) if issparse(node.W) else _dense(node.W),
        bias=np.ascontiguousarray(np.broadcast_to(_dense(node.bias).reshape(-1), (len(w_in),))),
        leak=float(leak[0]),
        activation=name,
    )


def _its_own(function: Any) -> bool:
    """Whether a function is reservoirpy's: another of the same name may do anything."""
    return getattr(function, "__module__", "").partition(".")[0] == "reservoirpy"


def _with_readout(network: EsnWeights, node: Any, parents: Sequence[Any], reservoir: Any) -> EsnWeights:
    """Return the network with a readout whose rows are those of its parents, one after the other."""
    rows = _dense(node.Wout)
    widths = [network.units if parent is reservoir else network.inputs for parent in parents]
    if sorted(widths, reverse=True)[:1] != [network.units] or sum(widths) != len(rows) or len(widths) > 2:
        raise SpecError(f"a readout must see the reservoir, or it and the inputs. Got {len(rows)} weights of an output")
    parts = np.split(rows, np.cumsum(widths)[:-1])
    ordered = sorted(zip(parents, parts, strict=True), key=lambda pair: pair[0] is not reservoir)
    return network.with_readout(
        np.concatenate([part for _, part in ordered]).T,
        np.broadcast_to(_dense(node.bias).reshape(-1), rows.shape[1:]),
        passthrough=len(parents) > 1,
        ridge=float(penalty) if np.ndim(penalty := getattr(node, "ridge", np.nan)) == 0 and penalty >= 0 else None,
    )


def _dense(values: Any) -> Doubles:
    return np.ascontiguousarray(values.toarray() if issparse(values) else values, np.float64)
