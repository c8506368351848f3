from types import SimpleNamespace

import pytest

from metalforge.core.errors import UnknownNameError, find
from metalforge.core.pages import Paragraphs


def test_paragraphs_have_figures_with_their_intervals_where_a_format_is_given(tmp_path):
    file = tmp_path / "words.toml"
    file.write_text('[one]\nfirst = ["{n} of {case[name]}", "saves {saved:.1%}, {saved.value:.2f}"]\n')
    saved = SimpleNamespace(value=0.25, low=0.2, high=0.3)
    said = Paragraphs(file)("one.first", n=3, case={"name": "A"}, saved=saved)
    assert said == ["3 of A", "saves 25.0% (20.0% .. 30.0%), 0.25"]
    with pytest.raises(KeyError, match="saved"):
        Paragraphs(file)("one.first", n=3, case={"name": "A"})


def test_what_is_found_by_its_name_and_what_is_not():
    assert find("fruit", "pear", {"pear": 2, "apple": 1}) == 2
    with pytest.raises(UnknownNameError, match="pear"):
        find("fruit", "paer", {"pear": 2, "apple": 1})
