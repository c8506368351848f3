"""Weights that say where they come from."""

import numpy as np
import pytest

from experiments.heads.training import reservoir
from metalforge.conductor.shipped import Provenance, read_provenance, save_with_provenance
from metalforge.core.errors import SpecError
from metalforge.reservoir.files import load_weights, save_weights

MADE = Provenance(command="a b --c", seed=1, corpus_seed=2026, corpus_sha256="0" * 64)


def test_a_file_says_how_it_was_made_and_is_the_same_network(tmp_path) -> None:
    weights, path = reservoir(3, units=16), tmp_path / "w.safetensors"
    save_with_provenance(weights, MADE, path)
    assert read_provenance(path) == MADE
    read = load_weights(path)
    np.testing.assert_array_equal(read.w_in, weights.w_in)
    np.testing.assert_array_equal(read.w_res, weights.w_res)
    assert read.features == weights.features
    again = tmp_path / "again.safetensors"
    save_with_provenance(weights, MADE, again)
    assert path.read_bytes() == again.read_bytes()


def test_other_files_say_nothing_or_are_refused(tmp_path) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(reservoir(3, units=16), path)
    assert read_provenance(path) is None
    path.write_bytes(b"nothing")
    with pytest.raises(SpecError, match="safetensors"):
        read_provenance(path)
    with pytest.raises(SpecError, match="safetensors"):
        save_with_provenance(reservoir(3, units=16), MADE, tmp_path / "w.json")
