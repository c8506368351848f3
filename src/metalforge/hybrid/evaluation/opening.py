"""What is to be evaluated: a network or a graph, and what of it is on a chip already where it was deployed or compiled.

A program of one layer says what matrix it stands for: integers times scales, for inputs within its ranges. In software
that matrix is what it is held against; what its quantisation lost before is not in the file.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from metalforge.core import FeatureSchema, HeadLayout, SpecError, naming
from metalforge.hybrid.deployed import Deployed, load
from metalforge.hybrid.deployed.model import DeployedEsn, DeployedPlan
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.opening import as_graph, expect_model
from metalforge.hybrid.model.ops import FullyConnectedOp
from metalforge.hybrid.routing.encodings import precision_of
from metalforge.hybrid.routing.plan import Plan
from metalforge.reservoir import EsnWeights, Layout, as_weights
from metalforge.substrates import Program, input_levels, ladder_of, wire

DEPLOYED = "deployed"
"""What the row of a model as it was deployed is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedModel:
    """A model, and how it reads and names things."""

    model: EsnWeights | OpGraph
    on_chip: HybridEsn | Plan | Program | None = None
    labels: tuple[str, ...] | None = None
    samples: bool = False
    """Whether a table of two axes is series of one step."""
    layout: Layout = "steps_first"
    """The order of the axes of several series."""
    features: FeatureSchema | None = None
    heads: HeadLayout | None = None
    """What scales inputs and outputs of a graph; a network has its own."""

    @property
    def precision(self) -> str:
        """The name of its row as it was deployed."""
        chip = self.on_chip
        known = precision_of(chip.encoding) if isinstance(chip, Program) else getattr(chip, "precision", None)
        return f"{DEPLOYED} {known}" if known else DEPLOYED


def open_model(model: Any) -> OpenedModel:
    """Return a model by its path, or of any object that is one."""
    if isinstance(model, str | os.PathLike):
        return _of_file(Path(model))
    if isinstance(model, Deployed):
        return _of_deployed(model)
    if isinstance(model, Plan):
        return OpenedModel(model=model.graph, on_chip=model)
    if isinstance(model, OpGraph):
        return OpenedModel(model=model)
    if isinstance(model, HybridEsn):
        return _of_network(model)
    classes = getattr(model, "classes_", None)
    return OpenedModel(
        model=as_weights(model),
        labels=None if classes is None else tuple(map(str, classes)),
        samples=(getattr(model, "rows", None) or getattr(model, "ROWS", None)) == "samples",
        layout=getattr(model, "layout_", "steps_first"),
    )


def _of_file(path: Path) -> OpenedModel:
    if not path.is_dir():
        expect_model(path, {".mfd": "what was deployed", ".mfp": "a program"})
    if path.suffix == ".onnx":
        return OpenedModel(model=as_graph(path))
    if path.suffix != ".mfp":
        return _of_deployed(load(path))
    program = wire.load(path)
    with naming(path):
        return OpenedModel(model=_graph_of(program), on_chip=program)


def _of_deployed(model: Deployed) -> OpenedModel:
    labels = None if model.record.labels is None else tuple(map(str, model.record.labels))
    if isinstance(model, DeployedPlan):
        record = model.record
        return OpenedModel(
            model=model.plan.graph,
            on_chip=model.plan if model.plan.jobs else None,
            labels=labels,
            features=record.features,
            heads=record.heads,
        )
    assert isinstance(model, DeployedEsn)
    series = model.record
    return replace(_of_network(model.esn), labels=labels, samples=series.rows == "samples", layout=series.layout)


def _of_network(esn: HybridEsn) -> OpenedModel:
    return OpenedModel(model=esn.weights, on_chip=esn if esn.mode != "software" else None)


def _graph_of(program: Program) -> OpGraph:
    """Return the matrix that a program of one layer stands for, as a graph."""
    if len(program.layers) != 1 or program.layers[0].activation != "linear":
        raise SpecError(
            f"program `{program.name}` has layers with activations, which say nothing of the reals they stand for"
            "\nhint: evaluate the model that it was compiled from"
        )
    ladder = ladder_of(program)
    step = ladder.ranges / input_levels(ladder.encoding)
    matrix = ladder.integers * ladder.scales[:, np.newaxis] / step
    return OpGraph(
        name=program.name,
        inputs={"input": (None, matrix.shape[1])},
        nodes=(Node(name="product", op=FullyConnectedOp(weights=matrix), inputs=("input",)),),
        outputs=("product",),
        dtype="float64",
    )
