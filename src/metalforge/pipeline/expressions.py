"""Predicates as text: ``chi > 10.0 and abs(beta - 5.69) < 0.1``, checked before they run.

The grammar is a small part of Python's expressions: numbers, strings, True and False, names of header fields,
``+ - * / %``, comparisons (chained ones too), ``and or not``, and the calls ``abs(x)``, ``min(x, y)``, ``max(x, y)``.
Python's parser makes the tree; one walk over it refuses everything else and types it. Only a tree that passed is
compiled, with every name replaced by a look-up of that field and no builtins but the three functions.
"""

import ast
import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from metalforge.core import SpecError, find

_MAX_CHARACTERS = 1000  # a predicate is a line; anything longer is a program
_MAX_DEPTH = 50
_ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.Div | ast.Mod
_ORDER = ast.Lt | ast.LtE | ast.Gt | ast.GtE
_CALLS: dict[str, tuple[Callable[..., Any], int]] = {"abs": (abs, 1), "min": (min, 2), "max": (max, 2)}
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
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise SpecError(f"`{text}` is not a predicate: {getattr(error, 'msg', error)}") from None
        self._kind(self._tree, None)
        self.names = tuple(sorted({n.id for n in ast.walk(self._tree) if isinstance(n, ast.Name)} - set(_CALLS)))
        decide = ast.parse("lambda look: 0", mode="eval")
        decide.body.body = _LookUps().visit(deepcopy(self._tree))  # type: ignore[attr-defined]  # of a lambda
        allowed = {name: function for name, (function, _) in _CALLS.items()}
        code = compile(ast.fix_missing_locations(decide), "<predicate>", "eval")
        self._decide: Callable[[Callable[[str], Any]], Any] = eval(code, {"__builtins__": {}, **allowed})

    def __call__(self, look: Callable[[str], Any]) -> bool:
        """Return whether the fields that `look` finds by name meet the predicate."""
        return bool(self._decide(look))

    def check(self, fields: Mapping[str, type]) -> None:
        """Raise when a name is not in `fields` or types do not go together; `fields` maps names to scalar types."""
        if (kind := self._kind(self._tree, fields)) != _TRUTH:
            raise SpecError(f"predicate `{self.text}` must be a truth value, such as `chi > 10`. Got a {kind}")

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def _kind(self, node: ast.expr, fields: Mapping[str, type] | None, depth: int = 1) -> str | None:
        """Return whether `node` is a number, a text or a truth value, None for a field where `fields` is None.

        Raises where kinds are mixed, and where the grammar has no such node.
        """
        text = self.text
        if depth > _MAX_DEPTH:
            raise SpecError(f"predicate `{text[:60]}...` is nested deeper than {_MAX_DEPTH} levels")

        def want(part: ast.expr, *allowed: str | None) -> str | None:
            came = self._kind(part, fields, depth + 1)
            if came is not None and came not in allowed:
                wanted = " or ".join(map(str, allowed))
                raise SpecError(f"`{ast.unparse(part)}` is a {came} where predicate `{text}` needs a {wanted}")
            return came

        match node:
            case ast.Constant(value=bool() | str() | int() | float() as value) if value != math.inf:
                return _KINDS[type(value)]
            case ast.Name(id=name) if name not in _CALLS:
                found = None if fields is None else find(f"field in predicate `{text}`", name, fields)
                if found is not None and found not in _KINDS:
                    raise SpecError(
                        f"field `{name}` is a {found.__name__}: predicate `{text}` can read int, float, str, bool"
                    )
                return None if found is None else _KINDS[found]
            case ast.BoolOp(values=parts):
                for part in parts:
                    want(part, _TRUTH)
                return _TRUTH
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                want(inner, _TRUTH)
                return _TRUTH
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                want(inner, _NUMBER)
                return _NUMBER
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _ARITHMETIC):
                want(left, _NUMBER)
                want(right, _NUMBER)
                return _NUMBER
            case ast.Compare(left=left, ops=ops, comparators=rights) if all(
                isinstance(op, _ORDER | ast.Eq | ast.NotEq) for op in ops
            ):
                ordered = any(isinstance(op, _ORDER) for op in ops)
                kind = want(left, _NUMBER, _TEXT, *([] if ordered else [_TRUTH]))
                for part in rights:
                    came = want(part, *(_KINDS.values() if kind is None else [kind]))
                    kind = kind or came
                return _TRUTH
            case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in _CALLS:
                n_arguments = _CALLS[name][1]
                if len(parts) != n_arguments:
                    raise SpecError(f"`{name}` takes {n_arguments} argument(s) in predicate `{text}`. Got {len(parts)}")
                for part in parts:
                    want(part, _NUMBER)
                return _NUMBER
        raise SpecError(
            f"`{ast.unparse(node)}` is not allowed in predicate `{text}`\n"
            "hint: fields, numbers, strings, + - * / %, comparisons, and, or, not, abs, min, max; else pass a callable"
        )


class _LookUps(ast.NodeTransformer):
    """Replaces the name of a field by a call of `look`; the functions of the grammar keep theirs."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in _CALLS:
            return node
        return ast.Call(ast.Name("look", ast.Load()), [ast.Constant(node.id)], [])
