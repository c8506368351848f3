"""Predicates as text: ``chi > 10.0 and abs(beta - 5.69) < 0.1``, checked before they run and never evaluated as code.

The grammar is a small part of Python's expressions: numbers, strings, True and False, names of header fields,
``+ - * / %``, comparisons (chained ones too), ``and or not``, and the calls ``abs(x)``, ``min(x, y)``, ``max(x, y)``.
Python's own parser makes the tree; a walk over it builds closures and refuses everything else.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from metalforge.core import SpecError, find

_MAX_CHARACTERS = 1000  # a predicate is a line; anything longer is a program
_MAX_DEPTH = 50

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_CALLS: dict[str, tuple[Callable[..., Any], int]] = {"abs": (abs, 1), "min": (min, 2), "max": (max, 2)}

Look: TypeAlias = Callable[[str], Any]
Value: TypeAlias = Callable[[Look], Any]
_NUMBER, _TEXT, _TRUTH = "number", "text", "truth value"
_KINDS: dict[type, str] = {bool: _TRUTH, int: _NUMBER, float: _NUMBER, str: _TEXT}


class Expression:
    """A predicate parsed from text; `names` are the fields it reads, `check` types it, calling it decides.

    >>> Expression("chi > 10.0 and abs(beta - 5.69) < 0.1")({"chi": 11.0, "beta": 5.7}.__getitem__)
    True
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _MAX_CHARACTERS:
            raise SpecError(f"a predicate has at most {_MAX_CHARACTERS} characters. Got {len(text)}")
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise SpecError(f"`{text}` is not a predicate: {getattr(error, 'msg', error)}") from None
        self._tree = tree
        _check_depth(tree, text)
        self._value = _build(tree, text)
        self.names = tuple(sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - set(_CALLS)))

    def __call__(self, look: Look) -> bool:
        """Return whether the fields that `look` finds by name meet the predicate."""
        return bool(self._value(look))

    def check(self, fields: Mapping[str, type]) -> None:
        """Raise when a name is not in `fields` or types do not go together; `fields` maps names to scalar types."""
        kind = _kind(self._tree, fields, self.text)
        if kind != _TRUTH:
            raise SpecError(f"predicate `{self.text}` must be a truth value, such as `chi > 10`. Got a {kind}")

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def _check_depth(tree: ast.expr, text: str) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(_MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise SpecError(f"predicate `{text[:60]}...` is nested deeper than {_MAX_DEPTH} levels")


def _refuse(node: ast.AST, text: str) -> SpecError:
    part = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
    return SpecError(
        f"`{part}` is not allowed in predicate `{text}`\n"
        "hint: fields, numbers, strings, + - * / %, comparisons, and, or, not, abs, min, max; else pass a callable"
    )


def _build(node: ast.expr, text: str) -> Value:
    """Return a function of a look-up that computes `node`."""
    match node:
        case ast.Constant(value=bool() | str() as value):
            return lambda look: value
        case ast.Constant(value=int() | float() as number) if math.isfinite(number):
            return lambda look: number
        case ast.Name(id=name) if name not in _CALLS:
            return lambda look: look(name)
        case ast.BoolOp(op=op, values=parts):
            values = [_build(part, text) for part in parts]
            if isinstance(op, ast.And):
                return lambda look: all(value(look) for value in values)
            return lambda look: any(value(look) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            negated = _build(inner, text)
            return lambda look: not negated(look)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            positive = _build(inner, text)
            return lambda look: -positive(look)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            combine, a, b = _ARITHMETIC[type(op)], _build(left, text), _build(right, text)
            return lambda look: combine(a(look), b(look))
        case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in _COMPARISONS for op in ops):
            return _build_comparison(left, ops, rights, text)
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in _CALLS:
            function, n_arguments = _CALLS[name]
            if len(parts) != n_arguments or any(isinstance(part, ast.Starred) for part in parts):
                raise SpecError(f"`{name}` takes {n_arguments} argument(s) in predicate `{text}`. Got {len(parts)}")
            arguments = [_build(part, text) for part in parts]
            return lambda look: function(*(argument(look) for argument in arguments))
    raise _refuse(node, text)


def _build_comparison(left: ast.expr, ops: list[ast.cmpop], rights: list[ast.expr], text: str) -> Value:
    tests = [_COMPARISONS[type(op)] for op in ops]
    values = [_build(part, text) for part in (left, *rights)]

    def compare(look: Look) -> bool:
        seen = values[0](look)
        for test, value in zip(tests, values[1:], strict=True):
            then = value(look)
            if not test(seen, then):
                return False
            seen = then
        return True

    return compare


def _kind(node: ast.expr, fields: Mapping[str, type], text: str) -> str:
    """Return whether `node` is a number, a text or a truth value; raises where they are mixed."""

    def want(part: ast.expr, *allowed: str) -> str:
        came = _kind(part, fields, text)
        if came not in allowed:
            raise SpecError(
                f"`{ast.unparse(part)}` is a {came} where predicate `{text}` needs a {' or '.join(allowed)}"
            )
        return came

    match node:
        case ast.Constant(value=value):
            return _KINDS[type(value)]
        case ast.Name(id=name):
            found = find(f"field in predicate `{text}`", name, fields)
            if found not in _KINDS:
                raise SpecError(
                    f"field `{name}` is a {found.__name__}: predicate `{text}` can read int, float, str, bool"
                )
            return _KINDS[found]
        case ast.BoolOp(values=parts):
            for part in parts:
                want(part, _TRUTH)
            return _TRUTH
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return want(inner, _TRUTH)
        case ast.UnaryOp(operand=inner):
            return want(inner, _NUMBER)
        case ast.BinOp(left=left, right=right):
            want(left, _NUMBER)
            return want(right, _NUMBER)
        case ast.Compare(left=left, ops=ops, comparators=rights):
            first = _kind(left, fields, text)
            ordered = any(not isinstance(op, ast.Eq | ast.NotEq) for op in ops)
            if first == _TRUTH and ordered:
                want(left, _NUMBER, _TEXT)
            for part in rights:
                want(part, first)
            return _TRUTH
        case ast.Call(args=parts):
            for part in parts:
                want(part, _NUMBER)
            return _NUMBER
    raise _refuse(node, text)
