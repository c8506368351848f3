"""Train a small GRU in PyTorch and write it as ONNX, with what PyTorch itself says of some inputs.

Needs torch and onnxscript, which the tests do not: they read the two files that this writes beside itself.

    python tests/golden/onnx/make_recurrent.py

Task: Mackey-Glass (tau 17), the next value from 32 values, by 20 units.
"""

from pathlib import Path

import numpy as np
import onnx
import torch

HERE = Path(__file__).parent
WINDOW, UNITS, STEPS, DELAY = 32, 20, 600, 17


def mackey_glass(length, substeps=10):
    """x' = 0.2 x(t - tau) / (1 + x(t - tau)^10) - 0.1 x by Euler steps of 1/10, one value a unit of time."""
    history = [1.2] * (DELAY * substeps + 1)
    for _ in range((length + 200) * substeps):
        now, then = history[-1], history[-1 - DELAY * substeps]
        history.append(now + (0.2 * then / (1 + then**10) - 0.1 * now) / substeps)
    return np.array(history[-length * substeps :: substeps], np.float32) - np.float32(0.9)


class Forecaster(torch.nn.Module):
    """The next value of a series from a window of it."""

    def __init__(self):
        super().__init__()
        self.recurrent = torch.nn.GRU(1, UNITS, batch_first=True)
        self.readout = torch.nn.Linear(UNITS, 1)

    def forward(self, window):
        states, _ = self.recurrent(window)
        return self.readout(states[:, -1])


def train():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    series = torch.from_numpy(mackey_glass(2000))
    windows = series.unfold(0, WINDOW + 1, 1)
    x, y = windows[:, :-1, None], windows[:, -1:]
    network = Forecaster()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    for step in range(STEPS):
        chosen = torch.randint(0, len(x) - 400, (64,))
        loss = torch.nn.functional.mse_loss(network(x[chosen]), y[chosen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.2e}")
    return network.eval(), x[-100:], y[-100:]


def main():
    network, x, y = train()
    with torch.no_grad():
        error = torch.sqrt(torch.mean((network(x) - y) ** 2)) / y.std()
        some = x[::10].contiguous()
        outputs = network(some)
    print(f"NRMSE on values not trained on: {error:.4f}")
    target = HERE / "recurrent.onnx"
    torch.onnx.export(
        network,
        (x[:2],),
        target,
        dynamo=True,
        external_data=False,
        input_names=["window"],
        output_names=["forecast"],
        dynamic_shapes=({0: "batch"},),
    )
    model = onnx.load(target)
    # The exporter notes where in the source each node comes from; that is of no use to anybody else.
    del model.metadata_props[:], model.graph.metadata_props[:]
    for part in (*model.graph.node, *model.graph.input, *model.graph.output, *model.graph.value_info):
        del part.metadata_props[:]
        part.doc_string = ""
    for tensor in model.graph.initializer:
        del tensor.metadata_props[:]
    model.doc_string, model.graph.name = "", "recurrent"
    onnx.save(model, target)
    np.savez(
        HERE / "recurrent.npz",
        window=some.numpy(),
        forecast=outputs.numpy(),
        test_window=x[:, :, 0].numpy(),
        test_value=y.numpy(),
        error=np.float32(error),
    )
    print(f"{target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
