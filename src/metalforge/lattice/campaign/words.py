"""The words of reports that only lattices have: `text.toml`."""

from pathlib import Path
from typing import Any

from metalforge.core.pages import Paragraphs

TEXTS = Paragraphs(Path(__file__).with_name("text.toml"))


def say(group: str, **figures: Any) -> str:
    """Return the sentences that `text.toml` has for `table.key`, with these figures in them."""
    return " ".join(TEXTS(group, **figures))
