"""What stays in ONNX, run by the host: a part of a model as a model of its own, in one session.

onnxruntime runs it where it has the kernels. Where it has none (some operators in float64), and for products of
integers, which it lets saturate on processors without the instructions for them, the standard's reference
implementation does.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from metalforge.core import Array, SpecError

from .operators import attributes_of, onnx, onnx_runtime, reference_evaluator
from .reading import RECURRENT, numbers_of, read_part
from .shapes import Sized, walk

Run: TypeAlias = Callable[[list[str], dict[str, Array]], Sequence[Any]]
SATURATING = frozenset({"MatMulInteger", "QLinearMatMul"})
UNSURE = frozenset({"AveragePool", "Conv", "MaxPool"})
"""Of which the reference errs in some forms of padding."""
QUIET = 4
"""onnxruntime's log level: what goes wrong is raised, not printed."""


class HostPart:
    """Some nodes of a model. Calling it with arrays, in the order of its inputs, gives those of its outputs.

    Every new set of input extents is walked through by shape inference before it runs.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model
        content = read_part(model)
        self.operators = tuple(node.op_type for node in content.graph.node)
        self._inputs = {value.name: value.type.tensor_type.elem_type for value in content.graph.input}
        self._outputs = [value.name for value in content.graph.output]
        self._nodes, self._opsets = tuple(content.graph.node), tuple(content.opset_import)
        self._constants = {t.name: Sized.of(numbers_of(t, t.name)) for t in content.graph.initializer}
        self._walked: set[tuple[tuple[int, ...], ...]] = set()
        self._run = self._session(onnx_runtime()) or self._reference()

    def __reduce__(self) -> tuple[type["HostPart"], tuple[bytes]]:
        """A copy opens a session of its own."""
        return HostPart, (self.model,)

    def __call__(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """Return the outputs; raises `SpecError` where they would be too large, or the numbers cannot be taken."""
        extents = tuple(x.shape for x in inputs)
        if extents not in self._walked:
            given = {name: Sized(kind, s) for (name, kind), s in zip(self._inputs.items(), extents, strict=True)}
            walk(self._nodes, self._opsets, {**self._constants, **given})
            self._walked.add(extents)
        feeds = dict(zip(self._inputs, inputs, strict=True))
        try:
            found = self._run(self._outputs, feeds)
        except Exception as error:  # onnxruntime and the reference raise types of their own
            raise SpecError(f"cannot take its inputs ({error})") from error
        return tuple(np.asarray(value) for value in found)

    def tried(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """Return the outputs of a first call: some kernels say only now that they lack a type."""
        try:
            return self(inputs)
        except SpecError as refused:
            if all(x.dtype != np.float64 for x in inputs):
                raise
            try:
                self._run = self._reference()
            except SpecError:
                raise refused from None
            return self(inputs)

    def _session(self, runtime: Any) -> Run | None:
        """Return how onnxruntime runs it; None where it has no kernel for a type, or not yet the operator."""
        if SATURATING.intersection(self.operators):
            return None
        options = runtime.SessionOptions()
        # Optimisations trade exactness for speed, and threads of its own would fight those of a campaign.
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = QUIET
        try:
            run: Run = runtime.InferenceSession(self.model, options, providers=["CPUExecutionProvider"]).run
        except Exception:  # its exceptions have no common base
            return None
        return run

    def _reference(self) -> Run:
        """Return how the standard's reference runs it."""
        if any(node.op_type in RECURRENT and attributes_of(node).get("activations") for node in self._nodes):
            raise SpecError("has gates that onnxruntime cannot run in this type of numbers")
        if strange := UNSURE.intersection(self.operators):
            raise SpecError(f"has {', '.join(sorted(strange))}, which onnxruntime cannot run beside the rest of it")
        try:
            evaluator = reference_evaluator(onnx.ModelProto.FromString(self.model))
        except Exception as error:
            raise SpecError(f"can be run neither by onnxruntime nor by onnx ({error})") from error

        def run(outputs: list[str], inputs: dict[str, Array]) -> Sequence[Any]:
            with np.errstate(all="ignore"):
                found: Sequence[Any] = evaluator.run(outputs, inputs)
            return found

        return run
