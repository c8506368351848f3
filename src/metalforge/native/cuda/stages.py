"""Which kernels walk the stages of an integrator."""

from collections.abc import Iterator

from metalforge.native.engine import ActionKernel, Floats

FUSED = "kick_move"
"""Kicks momenta and moves links in one pass, into other memory: others still read where they were."""
MOVE = "move_links"
"""Moves links, each by itself."""


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
