"""Networks from real trainers: scikit-learn through skl2onnx, live, and a GRU trained in PyTorch, from its file."""

from pathlib import Path

import numpy as np
import pytest
from skl2onnx import to_onnx
from sklearn.datasets import load_iris
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from metalforge.core.errors import SpecError
from metalforge.hybrid.model.onnx_import import load_onnx
from metalforge.hybrid.model.software import SoftwareModel
from reference.onnx_models import oracle

# How well they are trained does not matter here, only that their weights are a trainer's.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
GOLDEN = Path(__file__).parents[2] / "golden" / "onnx"


@pytest.fixture(scope="module")
def iris():
    x, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(x).astype(np.float32), y


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic"])
def test_a_trained_classifier_gives_the_probabilities_of_its_trainer(iris, activation):
    x, y = iris
    network = MLPClassifier((16, 8), activation=activation, solver="lbfgs", max_iter=300, random_state=1).fit(x, y)
    model = to_onnx(network, x[:1], options={"zipmap": False}, target_opset=21)
    graph = load_onnx(model)
    found = SoftwareModel(graph).forward({"X": x})
    wanted = oracle(model, {"X": x})
    np.testing.assert_allclose(found["probabilities"], wanted["probabilities"], atol=1e-6)
    np.testing.assert_allclose(found["probabilities"], network.predict_proba(x), atol=1e-5)
    assert found["label"].tolist() == wanted["label"].tolist() == network.predict(x).tolist()
    assert network.score(x, y) > 0.95
    kinds = [node.op.kind for node in graph.nodes]
    hidden = {"relu": "relu", "tanh": "tanh", "logistic": "sigmoid"}[activation]
    assert kinds[:6] == ["fully_connected", hidden, "fully_connected", hidden, "fully_connected", "softmax"]


def test_a_pipeline_with_names_for_classes_gives_its_probabilities():
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    network = make_pipeline(StandardScaler(), MLPClassifier((6,), solver="lbfgs", max_iter=100, random_state=4))
    network.fit(x, names)
    model = to_onnx(network, x[:1].astype(np.float32), options={"zipmap": False}, target_opset=21)
    graph = load_onnx(model, outputs=["probabilities"])
    assert graph.nodes[0].op.kind == "Scaler"
    found = SoftwareModel(graph).forward({"X": x})["probabilities"]
    np.testing.assert_allclose(found, network.predict_proba(x), atol=2e-5)
    with pytest.raises(SpecError, match=r"`classes`.*STRING"):  # the names themselves are text
        load_onnx(model)


def test_only_the_wanted_output_of_a_classifier_is_taken(iris):
    x, y = iris
    network = MLPClassifier((5,), solver="lbfgs", max_iter=200, random_state=1).fit(x, y)
    model = to_onnx(network, x[:1], options={"zipmap": False}, target_opset=18)
    graph = load_onnx(model, name="iris", outputs=["probabilities"])
    assert graph.name == "iris"
    assert graph.outputs == ("probabilities",)
    assert [node.op.kind for node in graph.nodes] == [
        "fully_connected",
        "relu",
        "fully_connected",
        "softmax",
        "identity",
    ]
    np.testing.assert_allclose(
        SoftwareModel(graph).forward({"X": x})["probabilities"], network.predict_proba(x), atol=1e-5
    )


def test_a_classifier_of_two_classes_gives_both_probabilities(iris):
    x, y = iris
    network = MLPClassifier((4,), solver="lbfgs", max_iter=500, random_state=2).fit(x, y > 0)
    model = to_onnx(network, x[:1], options={"zipmap": False}, target_opset=15)
    found = SoftwareModel(load_onnx(model, outputs=["probabilities"])).forward({"X": x})
    np.testing.assert_allclose(found["probabilities"], network.predict_proba(x), atol=1e-5)


def test_a_trained_regressor_gives_the_values_of_its_trainer(iris):
    x = iris[0]
    network = MLPRegressor(hidden_layer_sizes=(12,), activation="tanh", solver="lbfgs", max_iter=200, random_state=3)
    network.fit(x[:, :3], x[:, 3])
    model = to_onnx(network, x[:1, :3], target_opset=21)
    found = SoftwareModel(load_onnx(model)).forward({"X": x[:, :3]})["variable"]
    np.testing.assert_allclose(found, oracle(model, {"X": x[:, :3]})["variable"], atol=1e-5)
    np.testing.assert_allclose(found[:, 0], network.predict(x[:, :3]), atol=1e-5)


def test_probabilities_as_a_dictionary_are_refused_with_the_way_out(iris):
    x, y = iris
    network = MLPClassifier((4,), solver="lbfgs", max_iter=50, random_state=2).fit(x[:, :2], y)
    model = to_onnx(network, x[:1, :2], target_opset=18)
    with pytest.raises(SpecError, match=r"`ZipMap`.*ai\.onnx\.ml(.|\n)*zipmap"):
        load_onnx(model)


@pytest.fixture(scope="module")
def trained():
    with np.load(GOLDEN / "recurrent.npz", allow_pickle=False) as stored:
        return dict(stored)


def test_a_gru_from_pytorch_gives_what_pytorch_gave(trained):
    path = GOLDEN / "recurrent.onnx"
    assert path.stat().st_size < 100_000
    window, forecast = trained["window"], trained["forecast"]
    wanted = oracle(path.read_bytes(), {"window": window})["forecast"]
    found = SoftwareModel(load_onnx(path)).forward({"window": window})["forecast"]
    np.testing.assert_allclose(wanted, forecast, atol=1e-5)
    np.testing.assert_allclose(found, forecast, atol=1e-5)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_gru_from_pytorch_still_forecasts(trained):
    graph = load_onnx(GOLDEN / "recurrent.onnx")
    found = SoftwareModel(graph).forward({"window": trained["test_window"][:, :, np.newaxis]})["forecast"]
    error = np.sqrt(np.mean((found - trained["test_value"]) ** 2)) / np.std(trained["test_value"], ddof=1)
    assert error == pytest.approx(float(trained["error"]), rel=1e-3)
    assert error < 0.05


def test_a_gru_from_pytorch_is_software_but_for_its_readout():
    graph = load_onnx(GOLDEN / "recurrent.onnx")
    assert graph.name == "recurrent"
    assert graph.inputs == {"window": (None, 32, 1)}
    assert graph.shapes["forecast"] == (None, 1)
    # With all that the exporter writes to make zeros for the first state and to work out shapes: one part, run whole.
    gru, readout = (node.op for node in graph.nodes)
    assert "GRU" in gru.operators
    assert readout.kind == "fully_connected"
    assert "gates" in gru.reason
    assert gru.flops([(32, None, 1)]) == 2 * 32 * (60 * 1 + 60 * 20)
