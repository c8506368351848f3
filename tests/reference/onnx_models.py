"""Small ONNX models made in the test, and what the standard's reference implementation says of them."""

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper, shape_inference, version_converter
from onnx.reference import ReferenceEvaluator

TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float64): TensorProto.DOUBLE,
    np.dtype(np.float16): TensorProto.FLOAT16,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.uint8): TensorProto.UINT8,
    np.dtype(np.int8): TensorProto.INT8,
    np.dtype(bool): TensorProto.BOOL,
}


def node(op_type, inputs, outputs, name="", domain="", **attributes):
    return helper.make_node(op_type, list(inputs), list(outputs), name=name, domain=domain, **attributes)


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def int4(name, array, signed=True):
    """A tensor of 4-bit integers, packed by hand: two a byte, the first in the low half."""
    flat = np.asarray(array).ravel().astype(np.int64) & 15
    flat = np.append(flat, np.zeros(flat.size % 2, np.int64))
    raw = (flat[0::2] | flat[1::2] << 4).astype(np.uint8).tobytes()
    kind = TensorProto.INT4 if signed else TensorProto.UINT4
    return helper.make_tensor(name, kind, np.shape(array), raw, raw=True)


def model(nodes, inputs, outputs, constants=(), *, opset=21, dtype=np.float32, domains=(), ir_version=10) -> ModelProto:
    """A model; `inputs` maps names to extents (numbers, or names of open ones), `outputs` are names."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, TYPES[np.dtype(dtype)], shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        list(constants),
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    return shape_inference.infer_shapes(made)  # the types of the outputs, which a model must name


def session(source, **options):
    """A session on one thread. Optimisations are off: they trade exactness for speed, INT4 products most of all."""
    chosen = onnxruntime.SessionOptions()
    chosen.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    chosen.intra_op_num_threads = 1
    chosen.log_severity_level = 3
    for key, value in options.items():
        setattr(chosen, key, value)
    data = source.SerializeToString() if isinstance(source, ModelProto) else source
    return onnxruntime.InferenceSession(data, chosen, providers=["CPUExecutionProvider"])


def oracle(source, feeds):
    """What onnx.reference gives, by name of the output."""
    made = source if isinstance(source, ModelProto) else ModelProto.FromString(source)
    versions = {entry.domain: entry.version for entry in made.opset_import}
    if versions[""] < 13:  # the reference has Softmax in its newer form only
        made = version_converter.convert_version(made, 21)
    names = [output.name for output in made.graph.output]
    with np.errstate(all="ignore"):
        found = ReferenceEvaluator(made).run(names, dict(feeds))
    return dict(zip(names, map(np.asarray, found), strict=True))
