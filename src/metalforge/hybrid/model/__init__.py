"""A model as a graph of ops: an ESN, many heads or an ONNX file goes in; a checked graph that runs comes out."""
