import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.substrates.npu import EmulatedDevice, wire
from metalforge.substrates.npu.conformance import compare
from metalforge.substrates.npu.program import Activation, FullyConnected, Program
from metalforge.substrates.profiles import PROFILES
from reference import command_line


def call(*arguments, cwd, code=0):
    return command_line.call("npu", *arguments, cwd=cwd, code=code)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(1)
    np.save(tmp_path / "m.npy", rng.normal(size=(12, 178)) * 0.1)
    np.save(tmp_path / "x.npy", rng.uniform(-1, 1, (3, 178)))
    return tmp_path


def test_a_matrix_is_compiled_inspected_and_run(files):
    matrix, x = np.load(files / "m.npy"), np.load(files / "x.npy")
    made = json.loads(
        call("compile", "m.npy", "-o", "p.mfp", "--digits", 3, "--activation-bits", 16, "--json", cwd=files).stdout
    )
    assert made["files"] == ["p.mfp"]
    shown = json.loads(call("inspect", "p.mfp", "--json", cwd=files).stdout)
    assert shown["layers"][0]["units"] == 36
    assert shown["layers"][0]["overflow"] == "impossible"
    assert shown["fingerprint"] == wire.load(files / "p.mfp").fingerprint()
    ran = json.loads(call("run", "p.mfp", "x.npy", "--json", cwd=files).stdout)
    assert np.max(np.abs(np.array(ran["result"]) - x @ matrix.T)) <= made["error_bound"]
    assert ran["statistics"]["busy"]["source"] == "modelled"
    assert ran["statistics"]["inferences"] == 12  # 3 inputs of 4 nibble rows
    call("run", "p.mfp", "x.npy", "-o", "y.npy", cwd=files)
    assert np.array_equal(np.load(files / "y.npy"), np.array(ran["result"]))


def test_chip_integers_go_straight_through(files):
    weights = np.array([[1, -2], [3, 4]], np.int8)
    wire.save(Program(name="two", layers=(FullyConnected(name="two", weights=weights),)), files / "two.mfp")
    np.save(files / "lines.npy", np.array([[1, 2], [15, 0]], np.uint8))
    ran = json.loads(call("run", "two.mfp", "lines.npy", "--json", cwd=files).stdout)
    assert ran["result"] == [[7, 6], [15, -30]]


def test_real_inputs_want_the_range_that_the_program_is_for(files):
    matrix, x = np.load(files / "m.npy"), 5 * np.load(files / "x.npy")
    np.save(files / "x5.npy", x)
    wide = ("--range", 5, "--digits", 2, "--activation-bits", 12)
    bound = json.loads(call("compile", "m.npy", "-o", "p.mfp", *wide, "--json", cwd=files).stdout)["error_bound"]
    said = json.loads(call("run", "p.mfp", "--input", "x5.npy", "--json", cwd=files).stdout)["result"]
    assert np.max(np.abs(np.array(said) - x @ matrix.T)) <= bound
    assert "compiled for inputs up to 5" in call("run", "p.mfp", "x5.npy", "--range", 1, cwd=files, code=2).stderr
    program = wire.load(files / "p.mfp")
    wire.save(replace(program, ranges=np.zeros(0)), files / "old.mfp")  # as they were written before
    assert "--range" in call("run", "old.mfp", "x5.npy", cwd=files, code=2).stderr
    again = json.loads(call("run", "old.mfp", "x5.npy", "--range", 5, "--json", cwd=files).stdout)["result"]
    assert again == said


def test_a_matrix_that_could_saturate_becomes_several_programs(tmp_path):
    np.save(tmp_path / "wide.npy", np.ones((2, 6000)))
    made = json.loads(call("compile", "wide.npy", "-o", "w.mfp", "--json", cwd=tmp_path).stdout)
    assert made["files"] == ["w.0.mfp", "w.1.mfp"]
    x = np.random.default_rng(2).uniform(-1, 1, (3, 6000))
    np.save(tmp_path / "x.npy", x)
    said = json.loads(call("run", "w.mfp", "--input", "x.npy", "--json", cwd=tmp_path).stdout)["result"]
    assert np.abs(np.array(said) - x.sum(axis=1, keepdims=True)).max() <= made["error_bound"]
    assert "absent.mfp" in call("run", "absent.mfp", "--input", "x.npy", cwd=tmp_path, code=2).stderr


def test_explain_prices_both_profiles_and_says_what_does_not_fit(files):
    call("compile", "m.npy", "-o", "p.mfp", cwd=files)
    records = json.loads(call("explain", "p.mfp", "--json", cwd=files).stdout)
    assert [r["profile"] for r in records] == list(PROFILES)
    for record in records:
        assert {c["latency"]["profile"] for c in record["costs"].values()} == {record["profile"]}
    weights = np.ones((512, 512), np.int8)
    wide = [FullyConnected(name=f"l{i}", weights=weights, activation=Activation.BOUNDED_RELU) for i in range(5)]
    wire.save(Program(name="wide", layers=tuple(wide)), files / "wide.mfp")
    (refused,) = json.loads(call("explain", "wide.mfp", "--profile", "akd1000-published", "--json", cwd=files).stdout)
    assert "1 more than there are processors" in refused["refused"]
    assert "hint: use fewer units" in refused["refused"]


def test_rules_are_shown_each_with_its_example(tmp_path):
    shown = json.loads(call("rules", "--json", cwd=tmp_path).stdout)
    assert len(shown) == 13
    text = call("rules", cwd=tmp_path).stdout
    assert all(one["row"]["operation"] in text and one["model"] in text for one in shown)
    one = call("rules", "sigmoid", cwd=tmp_path).stdout
    assert "not hardware-native" in one
    assert "refused" in one


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rules", "tahn"), "did you mean `tanh`"),
        (("inspect", "x.npy"), "x.npy"),
        (("run", "absent.mfp", "x.npy"), "absent.mfp"),
        (("compile", "absent.npy", "-o", "p.mfp"), "absent.npy"),
        (("compile", "m.npy", "-o", "p.mfp", "--digits", 4), "1, 2 or 3 digits"),
        (("compile", "m.npy", "-o", "p.mfp", "--signed", "maybe"), "two_rail"),
        (("explain", "m.npy", "--profile", "akd1000"), "did you mean"),
    ],
)
def test_wrong_input_is_exit_two(files, arguments, message):
    assert message in call(*arguments, cwd=files, code=2).stderr


def test_pickles_are_never_loaded(files):
    np.save(files / "evil.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert "evil.npy" in call("compile", "evil.npy", "-o", "p.mfp", cwd=files, code=2).stderr


def test_conformance_of_nothing_is_wrong_input(files):
    assert "--programs" in call("conformance", "--programs", 0, cwd=files, code=2).stderr
    with pytest.raises(SpecError, match="at least one"):
        compare(EmulatedDevice(), EmulatedDevice(), n=0)


def test_conformance_without_the_sdk_names_the_extra(files):
    code = "import sys; sys.modules['akida'] = None\nfrom metalforge.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "npu", "conformance"], capture_output=True, text=True, cwd=files, check=False
    )
    assert done.returncode == 3
    assert "metalforge[npu]" in done.stderr
