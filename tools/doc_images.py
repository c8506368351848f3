"""Draw the pictures of the documentation: python tools/doc_images.py [FOLDER].

The figures come from the preset `tiny` with 40,000 updates, which is deterministic: they are the same wherever kernels
have fused operations. The diagram of the packages is drawn from the layers that import-linter checks.
"""

import sys
import tomllib
from html import escape
from pathlib import Path

import msgspec
import numpy as np

from metalforge import campaign
from metalforge.campaign.report.drawing import svg_bytes
from metalforge.campaign.report.figures import draw_all
from metalforge.campaign.report.parts import TransitionFigure
from metalforge.campaign.spec import preset

ROOT = Path(__file__).parents[1]
WANTED = {"transition": "transition", "loop-histogram": "histogram"}
"""Figures of the report that pages show, and the name of each there."""
TRAJECTORIES = 40_000
LARGEST_PULL = 4.0
"""Errors that a point may lie from its curve, as the evidence of a campaign has it."""
STOREY, WIDTH, INK = 44, 720, "#37474f"


def house() -> str:
    """Return the packages as an SVG: one row for each layer, below those that may import it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = next(one["layers"] for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {STOREY * len(layers)}" '
        'font-family="sans-serif" font-size="15">'
    ]
    for storey, layer in enumerate(layers):
        rooms = layer.split(" | ")
        wide = WIDTH / len(rooms)
        for place, room in enumerate(rooms):
            x, y = place * wide + 3, storey * STOREY + 3
            parts.append(
                f'<rect x="{x:.0f}" y="{y}" width="{wide - 6:.0f}" height="{STOREY - 6}" rx="5" fill="#eceff1" '
                f'stroke="{INK}"/><text x="{x + wide / 2 - 3:.0f}" y="{y + 24}" text-anchor="middle" '
                f'fill="{INK}">{escape(room)}</text>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


def farthest(figure: TransitionFigure) -> float:
    """Return the largest distance of a chain's susceptibility from the curve, in standard errors of the chain."""
    pulls = []
    for system in figure.systems:
        if (curve := system.curve) is None:
            continue
        for point in system.points:
            if point.chi is not None and point.chi.error:
                on_curve = float(np.interp(point.coordinate, curve.coordinate, curve.chi))
                pulls.append(abs(point.chi.mean - on_curve) / point.chi.error)
    return max(pulls)


def main(folder: Path) -> None:
    """Write the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "house.svg").write_text(house())
    tiny = preset("tiny")
    budget = msgspec.structs.replace(tiny.budget, trajectories=TRAJECTORIES)
    found = campaign.run(msgspec.structs.replace(tiny, budget=budget))
    if (pull := farthest(found.spec.theory.report.figure(found))) > LARGEST_PULL:
        raise SystemExit(f"a point of the figure lies {pull:.1f} errors from its curve: choose another run")
    for figure in draw_all(found):
        if figure.name in WANTED:
            (folder / f"{WANTED[figure.name]}.svg").write_bytes(svg_bytes(figure.figure))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")
