"""Predicates as text: the right answer, the right refusal, and nothing else is ever evaluated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalforge.core import MetalforgeError, SpecError, UnknownNameError
from metalforge.pipeline import Expression

FIELDS = {"chi": float, "beta": float, "n": int, "phase": str, "hot": bool, "links": list}


@pytest.mark.parametrize(
    "text",
    ["chi > 10.0", "chi > 10.0 and abs(beta - 5.69) < 0.1", "not hot", "hot or n % 2 == 0", "1 < n <= 5",
     "phase == 'confined'", "min(chi, beta) * 2 >= max(n, 3) - 1", "-chi < 0", "hot == True", "n != 3 / 2 + 1"],
)  # fmt: skip
@given(chi=st.floats(-20, 20), beta=st.floats(5, 6), n=st.integers(-3, 9), hot=st.booleans())
def test_a_predicate_decides_as_python_does(text, chi, beta, n, hot):
    values = {"chi": chi, "beta": beta, "n": n, "hot": hot, "phase": "confined"}
    expression = Expression(text)
    expression.check(FIELDS)
    assert expression(values.__getitem__) is bool(eval(text, {}, values))  # the reference: Python itself


@pytest.mark.parametrize(
    "text",
    ["__import__('os').system('true')", "chi.real > 1", "[chi][0] > 1", "(lambda: chi)() > 1", "chi ** 9 > 1",
     "chi if hot else beta", "{1: chi}", "f'{chi}'", "chi > 1; beta", "abs(chi, beta)", "abs(*chi)", "min(chi, key=n)",
     "chi := 3", "", "chi >", "abs > 1", "1e999 > chi", "chi in phase", "chi is n", "None == chi", "b'x' == chi",
     "2j == chi", "yield chi", "await chi", "open('f')", "not " * 60 + "hot", "n + " * 400 + "n > 1"],
)  # fmt: skip
def test_everything_else_is_refused_before_it_runs(text):
    with pytest.raises(SpecError):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [("ch > 1", "did you mean `chi`"), ("phase > 1", "needs a text"), ("chi + phase > 1", "needs a number"),
     ("chi", "truth value"), ("not chi", "truth value"), ("links == 1", "list"), ("hot > False", "number or text"),
     ("chi > 1 and n", "truth value")],
)  # fmt: skip
def test_names_and_types_are_checked(text, words):
    with pytest.raises((SpecError, UnknownNameError), match=words):
        Expression(text).check(FIELDS)


@given(st.text(max_size=60))
def test_no_text_does_anything_but_parse_or_raise(text):
    try:
        expression = Expression(text)
    except MetalforgeError:
        return
    assert all(name.isidentifier() for name in expression.names)
