"""Plain records as YAML: blocks of keys and lists, with scalars as JSON writes them, so that none is misread."""

import json
import re
from typing import Any

_TAKEN = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
"""Words that are no strings for some reader of YAML."""


def yaml_documents(documents: list[dict[str, Any]], comment: str = "") -> str:
    """Return documents one after the other, below a comment."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return head + "".join("---\n" + "\n".join(_lines(document)) + "\n" for document in documents)


def _lines(value: Any) -> list[str]:
    """Return the lines of a value; what a record or a list holds stands below it, moved to the right."""
    if isinstance(value, dict) and value:
        return [line for key, inner in value.items() for line in _below(f"{_scalar(key)}:", inner)]
    if isinstance(value, list) and value:
        return [("  " if i else "- ") + line for inner in value for i, line in enumerate(_lines(inner))]
    return [_scalar(value)]


def _below(key: str, value: Any) -> list[str]:
    lines = _lines(value)
    if isinstance(value, dict | list) and value:
        return [key, *(f"  {line}" for line in lines)]
    return [f"{key} {lines[0]}"]


def _scalar(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch("[A-Za-z][A-Za-z-]*", value) and value.lower() not in _TAKEN:
        return value  # a word, which is easier to read without quotes
    text = json.dumps(value, ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", lambda found: f"\\u{ord(found[0]):04x}", text)
