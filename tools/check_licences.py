"""Fail when a run-time dependency, direct or not, has a licence that cannot be combined with AGPL-3.0-only.

Reads what each installed package says of itself: the SPDX expression, else the classifiers, else the licence field.
"""

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

__all__ = ["acceptable", "verdicts"]

COMPATIBLE = {
    "0BSD", "AGPL-3.0-only", "AGPL-3.0-or-later", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0",
    "CC0-1.0", "GPL-3.0-only", "GPL-3.0-or-later", "ISC", "LGPL-2.1-or-later", "LGPL-3.0-only", "LGPL-3.0-or-later",
    "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib",
    "GPL-3.0-or-later WITH GCC-exception-3.1",
}  # fmt: skip

CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "GNU Affero General Public License v3": "AGPL-3.0-only",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "zlib/libpng License": "Zlib",
}


def acceptable(licence: str) -> bool:
    """Whether an SPDX expression allows the combination: every AND part, any OR part."""
    text = licence.strip()
    if not text:
        return False
    if " OR " in text and "(" not in text:
        return any(acceptable(part) for part in text.split(" OR "))
    parts = re.split(r"\s+(?:AND)\s+", text.replace("(", "").replace(")", ""))
    return all(part.strip() in COMPATIBLE for part in parts)


def licence_of(package: Distribution) -> str:
    """Return what a package says its licence is, as SPDX where possible."""
    fields = package.metadata.json
    if expression := fields.get("license_expression"):
        return str(expression)
    classified = [
        CLASSIFIERS.get(c.split(" :: ")[-1], c.split(" :: ")[-1])
        for c in fields.get("classifier", [])
        if c.startswith("License :: ") and c != "License :: OSI Approved"
    ]
    if classified:
        return " AND ".join(classified)
    short = str(fields.get("license", "")).split("\n")[0].strip()
    return CLASSIFIERS.get(short, short)


def verdicts(root: str) -> dict[str, tuple[bool, str]]:
    """Return (accepted, licence) of every installed run-time dependency of `root`, found through their metadata."""
    found: dict[str, tuple[bool, str]] = {}
    queue = [root]
    while queue:
        name = queue.pop()
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue  # behind a marker that does not hold here (another platform or Python)
        key = package.metadata["Name"].lower().replace("_", "-")
        if key in found:
            continue
        licence = licence_of(package)
        found[key] = (acceptable(licence), licence)
        run_time = [r for r in package.requires or [] if "extra ==" not in r]
        queue += [re.split(r"[\s;<>=!~\[(]", requirement, maxsplit=1)[0] for requirement in run_time]
    return found


def main() -> int:
    rejected = {name: licence for name, (accepted, licence) in verdicts("metalforge").items() if not accepted}
    for name, licence in rejected.items():
        sys.stderr.write(f"{name}: licence `{licence or 'not stated'}` is not known to combine with AGPL-3.0-only\n")
    if rejected:
        sys.stderr.write("hint: choose another package, or add the licence to COMPATIBLE with the reason\n")
    return 1 if rejected else 0


if __name__ == "__main__":
    sys.exit(main())
