"""Links and momenta through the stages of an integrator, by the strategy of their engine (precision.py)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from metalforge.native.engine import ActionKernel, BufferKind, Floats

from .card import LINK_THREADS, DeviceBuffer, Launcher
from .precision import Fp64Choice, Fp64Strategy

if TYPE_CHECKING:
    from .grid import CudaGrid

FUSED = "kick_move"
"""Kicks momenta and moves links in one pass, into other memory: others still read where they were."""
MOVE = "move_links"
"""Moves links, each by itself."""
_TARGETS = {"links": "to", "pairs": "pairs_to"}
"""Where kernels are told to put what they read there."""


class Walker:
    """The kernels that move a grid's links, and the memory that they go to on the way, kept between walks."""

    def __init__(self, grid: "CudaGrid", choice: Fp64Choice, record: np.dtype[Any]) -> None:
        self._grid = grid
        # Single precision has no pairs: its walks are its own.
        self._choice = choice if grid.precision == "f64" else Fp64Choice()
        self._in_pairs = Launcher(grid, "pairs.cu", record)
        self._in_pairs.record["pair_share"] = self._choice.pair_share
        self._spares: dict[str, DeviceBuffer] = {}

    def walk(
        self,
        links: DeviceBuffer,
        momenta: DeviceBuffer,
        stages: Floats,
        action: ActionKernel,
        *,
        keep: bool,
        **values: Any,
    ) -> DeviceBuffer:
        """Walk (kind, coefficient); return the buffer that has the links then: with `keep`, `links` is left alone.

        Without `keep` a spare may have them, and `links` old ones: the caller exchanges their memory.
        """
        values |= {"keep": 1.0, "momenta": momenta}
        if self._choice.strategy == Fp64Strategy.NATIVE:
            return self._stages({"links": links}, "", stages, action, keep, values)
        fields = {"links": links, "pairs": self._spare("pairs 0")}
        if self._choice.strategy == Fp64Strategy.CONCURRENT:
            self._on_links("split_fields", **fields)
            return self._stages(fields, "_shared", stages, action, keep, values)
        both = {"momenta": momenta, "pair_momenta": self._spare("pair momenta", "momenta")}
        self._on_links("split_fields", **fields, **both)
        values["momenta"] = both["pair_momenta"]
        pairs = self._stages({"links": fields["pairs"]}, "_pairs", stages, action, False, values)
        there = self._spare("links 0") if keep else links
        self._on_links("join_fields", links=there, pairs=pairs, **both)
        return there

    def _stages(
        self,
        start: dict[str, DeviceBuffer],
        suffix: str,
        stages: Floats,
        action: ActionKernel,
        keep: bool,
        values: dict[str, Any],
    ) -> DeviceBuffer:
        """Walk with the kernels of a suffix, from `start` through spares; return where the links are."""
        here = 0
        for kernel, numbers in stages_of(stages, action):
            there = here
            if kernel == FUSED or (kernel == MOVE and keep and here == 0):
                # Others still read the links that are here; those at the start stay, where they are to be kept.
                there = 1 if here != 1 else 2 if keep else 0
            to = {_TARGETS[name]: buffer for name, buffer in self._place(start, there).items()}
            self._on_links(kernel + suffix, **self._place(start, here), **to, **values, **numbers)
            here = there
        return self._place(start, here)["links"]

    def _place(self, start: dict[str, DeviceBuffer], number: int) -> dict[str, DeviceBuffer]:
        return {name: self._spare(f"{name} {number}") for name in start} if number else start

    def _on_links(self, kernel: str, **values: Any) -> None:
        if self._choice.strategy == Fp64Strategy.NATIVE:
            self._grid.on_links(kernel, **values)
        else:
            self._in_pairs(kernel, self._grid.link_blocks, LINK_THREADS, **values)

    def _spare(self, name: str, kind: BufferKind = "links") -> DeviceBuffer:
        """Memory of a name, as much as a field of that kind takes: a pair of floats is as long as a double."""
        if name not in self._spares:
            self._spares[name] = self._grid.memory(kind)
        return self._spares[name]


def stages_of(stages: Floats, action: ActionKernel) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the kernels that walk an integrator's stages: a kick and the move after it are one where there is one."""
    name, c1 = action_of(action)
    kick: float | None = None
    for kind, coefficient in stages:
        if kick is not None and kind == 0.0 and name == "wilson":
            yield FUSED, {"coefficient": kick, "eps": float(coefficient)}
            kick = None
            continue
        if kick is not None:
            yield f"kick_{name}", {"coefficient": kick, "c1": c1}
        kick = None if kind == 0.0 else float(coefficient)
        if kick is None:
            yield MOVE, {"eps": float(coefficient)}
    if kick is not None:
        yield f"kick_{name}", {"coefficient": kick, "c1": c1}


def action_of(action: ActionKernel) -> tuple[str, float]:
    """The kernels of an action, by their name, and its coefficient."""
    return ("wilson", 0.0) if action is None or action[0] == "wilson" else (action[0], float(action[1][0]))
