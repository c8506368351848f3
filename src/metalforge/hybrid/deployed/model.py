"""Deployed models: `deploy` writes one, `predict` runs one on raw inputs.

Raw means as they were measured. A network's feature schema says what it sees of them, (value - offset) / scale; its
heads say what its outputs stand for, offset + scale * activation(output). Both are applied here.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core import Array, Closing, FeatureSchema, HeadLayout, PathLike, Reals, SpecError
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.paths import DevicePath
from metalforge.hybrid.model.graph import OpGraph
from metalforge.hybrid.model.inputs import Outputs, as_series_of
from metalforge.hybrid.routing.encodings import precision_of
from metalforge.hybrid.routing.plan import OpPlan, Plan
from metalforge.hybrid.running.device_matrix import OnFailure
from metalforge.hybrid.running.executor import HybridExecutor
from metalforge.reservoir import EsnWeights, Layout, head_values, side_by_side, steps_first
from metalforge.substrates import NpuDevice

from .plan_file import frozen
from .record import EsnRecord, Label, PlanFile, write_network, write_plan

Series: TypeAlias = ArrayLike | Sequence[ArrayLike]


class Deployed(Closing):
    """A model that was read from a file. `device` is the NPU it runs on, None in software."""

    def __init__(
        self,
        record: EsnRecord | PlanFile,
        runner: HybridEsn | HybridExecutor,
        device: NpuDevice | None,
        *,
        owned: bool,
    ) -> None:
        self.record, self.device = record, device
        self._runner, self._owned = runner, owned

    @property
    def provenance(self) -> dict[str, str]:
        """Where it comes from."""
        return {"made by": self.record.made_by, **self.record.provenance}

    @abstractmethod
    def predict(self, inputs: Any) -> Any:
        """Return what the model says of raw inputs, from rest."""

    @abstractmethod
    def places(self) -> tuple[OpPlan, ...]:
        """Return where each layer runs."""

    @property
    @abstractmethod
    def clipped(self) -> int:
        """Numbers beyond the ranges of the NPU's inputs since the model was loaded; they were clamped."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return what the file holds, by name, for whoever looks at it."""

    def close(self) -> None:
        """Take the programs off the device; a device that was made here is closed too."""
        self._runner.close()
        if self._owned and self.device is not None:
            self.device.__exit__(None, None, None)

    def _classed(self, outputs: Array) -> Array:
        """Return the names of the largest outputs, where the model has names."""
        if self.record.labels is None:
            return outputs
        if np.shape(outputs)[-1:] != (len(self.record.labels),):
            raise SpecError(f"{len(self.record.labels)} labels for outputs of shape {np.shape(outputs)}: each has one")
        return np.asarray(np.asarray(self.record.labels)[np.argmax(outputs, axis=-1)])


class DeployedEsn(Deployed):
    """A network: series go in, an output for every step or for every series comes out."""

    record: EsnRecord

    def __init__(
        self,
        esn: HybridEsn,
        record: EsnRecord,
        device: NpuDevice | None = None,
        *,
        owned: bool = False,
        reason: str = "no device was given",
    ) -> None:
        super().__init__(record, esn, device, owned=owned)
        self.esn = esn
        self._reason = reason  # why it is in software, where it is
        self._clipped = 0
        self._largest = inf if esn.path is None or esn.path.place == "host" else esn.ranges.u

    def predict(self, inputs: Series) -> Any:
        """Return outputs in the form of the inputs.

        One series (steps, inputs) gives (steps, outputs); several (series, steps, inputs), or a list of any lengths,
        give as many. Where the record says `series`, each series has one output, at its last step. Classes come by
        name. A table of `samples` is that many series of one step.
        """
        tables, form = self._tables(inputs)
        series = [one.astype(self.esn.weights.dtype) for one in tables]
        self._clipped += sum(int(np.count_nonzero(np.abs(one) > self._largest)) for one in series)
        said = [self._said(y, u) for y, u in zip(side_by_side(series, self._run), series, strict=True)]
        if self.record.target == "series" or form == "samples":
            found = np.stack([y[-1] for y in said])
            return found[0] if form == "one" else found
        if form == "one":
            return said[0]
        return np.stack(said) if form == "array" else said

    def places(self) -> tuple[OpPlan, ...]:
        """Return where the reservoir and the readout run; bias, activation and leak are always the host's."""
        software = self.record.mode == "software"
        precision = "" if software else self.record.precision or "W4A4"
        reservoir = OpPlan(
            op="reservoir",
            kind="recurrent_step",
            substrate="software" if software else "npu+software",
            encoding=precision,
            reason=self._reason if software else "",
        )
        if self.esn.weights.w_out is None:
            return (reservoir,)
        why = "the readout of a network is not quantised"
        return reservoir, OpPlan(op="readout", kind="fully_connected", substrate="software", reason=why)

    @property
    def clipped(self) -> int:
        """Inputs beyond the range of the NPU's lines."""
        return self._clipped

    def facts(self) -> dict[str, Any]:
        """Return what the network is, how it is run, and what goes in and comes out."""
        w, record = self.esn.weights, self.record
        how = ("mode", "precision", "approach", "inputs", "target", "labels")
        return {
            "network": {name: getattr(w, name) for name in ("inputs", "units", "outputs", "activation", "leak")},
            "run": {name: getattr(record, name) for name in how},
            "ranges": None if w.ranges is None else {"inputs": w.ranges.u, "states": w.ranges.s},
            "ridge": w.ridge,
            "features": w.features,
            "heads": w.heads,
            "provenance": self.provenance,
        }

    def _tables(self, inputs: Series) -> tuple[list[Reals], str]:
        """Return series (steps, inputs) as the network sees them, and the form in which they came."""
        several = isinstance(inputs, list | tuple) and all(np.ndim(one) >= 2 for one in inputs)
        given = inputs if several else np.asarray(inputs)
        samples = self.record.rows == "samples"
        found = network_series("input", given, self.esn.weights, np.float64, samples=samples, layout=self.record.layout)
        if not isinstance(given, np.ndarray) or given.dtype == object:
            return found, "list"
        form = "samples" if samples and given.ndim == 2 else "one"
        return found, "array" if given.ndim == 3 or (form == "one" and len(found) > 1) else form

    def _run(self, batch: Array) -> Array:
        esn = self.esn
        if esn.weights.w_fb is not None:
            esn.reset(batch=len(batch))
            return esn.run(batch)
        states = esn.states(batch)
        return states if esn.weights.w_out is None else esn.weights.output(states, batch)

    def _said(self, outputs: Array, inputs: Array) -> Array:
        w = self.esn.weights
        values = outputs if w.w_out is None or w.heads is None else head_values(w.heads, w.features, outputs, inputs)
        return values[:, 0] if self.record.flat and self.record.labels is None else self._classed(values)


class DeployedPlan(Deployed):
    """A plan: a batch goes in, or for a graph with a state sequences from rest; its outputs come out."""

    record: PlanFile

    def __init__(
        self, plan: Plan, record: PlanFile, device: NpuDevice, *, owned: bool, on_device_failure: OnFailure
    ) -> None:
        self.plan = plan
        self.executor = HybridExecutor(plan, device, on_device_failure=on_device_failure)
        super().__init__(record, self.executor, device, owned=owned)

    def places(self) -> tuple[OpPlan, ...]:
        """Return where each op of the plan runs."""
        return self.plan.record.ops

    @property
    def clipped(self) -> int:
        """Numbers beyond the ranges that the plan's jobs were compiled for."""
        return self.executor.statistics().clipped

    def facts(self) -> dict[str, Any]:
        """Return the graph's inputs and outputs, what is on the device, and what scales them."""
        graph, plan, record = self.plan.graph, self.plan, self.record
        jobs = [
            {"job": job.name, "ops": job.nodes, "precision": precision_of(job.encoding), "programs": len(job.programs)}
            for job in plan.jobs
        ]
        shape = {"inputs": dict(graph.inputs), "outputs": graph.outputs, "ops": len(graph.nodes)}
        return {
            "graph": {"name": graph.name, **shape},
            "device": {"profile": plan.profile.name, "jobs": jobs},
            "ranges": {job.name: float(job.ranges.max()) for job in plan.jobs},
            **{name: getattr(record, name) for name in ("labels", "features", "heads")},
            "provenance": self.provenance,
        }

    def predict(self, inputs: ArrayLike | Mapping[str, ArrayLike]) -> Outputs:
        """Return the outputs: an array, or several by name where the graph has more than one."""
        graph, schema = self.plan.graph, self.record.features
        if isinstance(inputs, Mapping):
            inputs = scaled_inputs(schema, inputs)
        elif schema is not None:
            inputs = schema.scaled(inputs)
        self.executor.reset()
        outputs = (self.executor.run if graph.stateful else self.executor.forward)(inputs)
        found = read_graph(self.record.heads, schema, graph, outputs, inputs)
        return found if isinstance(found, dict) else self._classed(found)


def deploy(
    model: Any,
    path: PathLike,
    *,
    labels: Sequence[Label] | NDArray[Any] | None = None,
    target: str | None = None,
    provenance: Mapping[str, str] | None = None,
    features: FeatureSchema | None = None,
    heads: HeadLayout | None = None,
) -> None:
    """Write a model with all that inference needs to one file, which `load` reads.

    Parameters
    ----------
    model
        A `HybridEsn` on whatever substrate, `EsnWeights`, a fitted estimator, a `Plan` or a
        `HybridExecutor`.
    labels
        Names of classes, an output each; those of a classifier are its own.
    target
        "step" or "series": an output for every step of a series, or one at its end.
    provenance
        Where the model comes from, as free text by name.
    features, heads
        What scales inputs and outputs, where the model does not say it itself.
    """
    names = None if labels is None else tuple(np.asarray(labels).tolist())
    common: dict[str, Any] = {"labels": names, "provenance": dict(provenance or {})}
    if isinstance(model, HybridExecutor | Plan):
        plan = model if isinstance(model, Plan) else model.plan
        value, arrays = frozen(plan)
        write_plan(PlanFile(plan=value, features=features, heads=heads, **common), arrays, path)
        return
    kind: dict[str, Any] = {} if target is None else {"target": target}
    if not isinstance(model, HybridEsn | EsnWeights):
        model, kind = _fitted(model, kind, common)
    network = model if isinstance(model, EsnWeights) else model.weights
    weights = replace(network, features=features or network.features, heads=heads or network.heads)
    if isinstance(model, HybridEsn) and model.path is not None and model.programs.programs:
        weights = replace(weights, ranges=model.ranges)
        kind |= _on_device(model, model.path)
    record = msgspec.convert({"type": "esn", **kind, **common}, EsnRecord)
    if names is not None and len(names) != weights.outputs:
        raise SpecError(f"{len(names)} labels for {weights.outputs} outputs: each class has one")
    write_network(weights, record, path)


def fingerprints(esn: HybridEsn) -> tuple[str, ...]:
    """Return the fingerprints of a network's programs."""
    return tuple(program.fingerprint() for program in esn.programs.programs)


def _on_device(esn: HybridEsn, path: DevicePath) -> dict[str, Any]:
    """Return how a network on a device is run. Chunks that fitted one device may take turns on another."""
    profile = getattr(getattr(path.programs.device, "profile", None), "name", EsnRecord().profile)
    found = {
        "mode": esn.mode,
        "approach": esn.approach,
        "precision": esn.precision,
        "inputs": path.place if path.exact is not None or esn.plan is not None else None,
        "profile": profile if esn.plan is None else esn.plan.profile.name,
        "programs": fingerprints(esn),
    }
    if esn.plan is not None:
        found |= {"chunk_units": len(esn.plan.chunks[0].rows), "device_units": esn.plan.device_units}
    return found


def network_series(
    name: str, given: Any, weights: EsnWeights, dtype: Any, *, samples: bool, layout: Layout
) -> list[Reals]:
    """Return raw series as a network sees them; a table of `samples` is as many series of one step."""
    given = steps_first(given, layout)
    if samples and isinstance(given, np.ndarray) and given.ndim == 2:
        given = given[:, np.newaxis]
    found = as_series_of(name, given, weights.inputs, dtype)
    return found if weights.features is None else [weights.features.scaled(one).astype(dtype) for one in found]


def read_graph(
    heads: HeadLayout | None, features: FeatureSchema | None, graph: OpGraph, outputs: Outputs, inputs: Any
) -> Outputs:
    """Return the values of a graph's heads, side by side, or its outputs where it has no heads.

    `inputs` are those of the call, as the graph sees them. The graph applies the activations of its heads itself.
    """
    if heads is None:
        return outputs
    joined = np.concatenate([outputs[name] for name in graph.outputs], -1) if isinstance(outputs, dict) else outputs
    given = next(iter(inputs.values())) if isinstance(inputs, Mapping) else inputs
    return head_values(heads, features, joined, given, activated=True)


def _fitted(model: Any, kind: dict[str, Any], common: dict[str, Any]) -> tuple[EsnWeights, dict[str, Any]]:
    """Return the network of an estimator, and how it reads its inputs."""
    weights = getattr(model, "weights_", None)
    if not isinstance(weights, EsnWeights):
        raise SpecError(
            f"a {type(model).__name__} cannot be deployed"
            "\nhint: HybridEsn, EsnWeights, a fitted EsnRegressor or EsnClassifier, Plan and HybridExecutor can"
        )
    classes = getattr(model, "classes_", None)
    if classes is not None:
        common["labels"] = tuple(np.asarray(classes).tolist())
    own = {
        "target": model.target or model.TARGET,
        "rows": model.rows or model.ROWS,
        "layout": model.layout_,
        "flat": bool(getattr(model, "single_output_", False)),
    }
    return weights, own | kind


def scaled_inputs(schema: FeatureSchema | None, inputs: Any) -> dict[str, Any]:
    """Return raw inputs by name as a graph sees them."""
    return dict(inputs) if schema is None else {name: schema.scaled(values) for name, values in inputs.items()}
