"""Texts of strangers' files as they may be shown: what a terminal would obey is spelled."""


def escaped(text: str, *, lines: bool = False) -> str:
    r"""Return a text whose characters are all printable: others as Python writes them, ``\x1b`` and the like.

    `lines`: line ends stay.
    """
    if text.isprintable():
        return text
    kept = "\n" if lines else ""
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)
