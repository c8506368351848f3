"""What is asked beside a spec or of a campaign that has run: lists as people type them, and the presets there are."""

from typing import TYPE_CHECKING

from .machine import Json
from .output import print_json, print_table

if TYPE_CHECKING:
    from metalforge.campaign.extending import Extension
    from metalforge.campaign.spec import CampaignSpec

__all__ = ["BETAS", "VOLUMES", "asked", "presets"]

VOLUMES = "A lattice x,y,z,t, as in 12,12,12,4; may be given several times."
BETAS = "Couplings that every volume visits first, as in 5.68,5.70."


def asked(
    *,
    seconds: float | None,
    trajectories: int | None,
    target_error: float | None,
    volume: list[str] | None,
    beta: str | None,
) -> "Extension":
    """Return what the options ask for."""
    from metalforge.campaign.extending import Extension

    return Extension(
        seconds=seconds,
        trajectories=trajectories,
        target_error=target_error,
        volumes=tuple(_volume(text) for text in volume or ()),
        betas=() if beta is None else tuple(_numbers("--beta", beta, "numbers as in 5.68,5.70")),
    )


def presets(as_json: Json = False) -> None:
    """List the presets of `scan`: their lattices, range and budget, and what they are for."""
    from metalforge.campaign.report.words import lattice_name
    from metalforge.campaign.spec import ABOUT, PRESETS

    if as_json:
        print_json([
            {
                "name": name,
                "about": ABOUT[name],
                "volumes": spec.lattice.volumes,
                "beta_min": spec.lattice.beta_min,
                "beta_max": spec.lattice.beta_max,
                "budget": spec.budget,
                "deterministic": spec.running.deterministic,
            }
            for name, spec in PRESETS.items()
        ])  # fmt: skip
        return
    rows = [
        (
            name,
            ", ".join(lattice_name(dims) for dims in spec.lattice.volumes),
            f"{spec.lattice.beta_min:g} to {spec.lattice.beta_max:g}",
            _budget(spec),
            ABOUT[name],
        )
        for name, spec in PRESETS.items()
    ]
    print_table("presets: metalforge scan --preset NAME", ("name", "lattice", "beta", "budget", "what it is"), rows)


def _budget(spec: "CampaignSpec") -> str:
    budget = spec.budget
    parts = [
        *([f"{budget.trajectories} updates"] if budget.trajectories is not None else []),
        *([f"{budget.seconds:g} s"] if budget.seconds is not None else []),
        *([f"{budget.joules:g} J"] if budget.joules is not None else []),
        *([f"an error of {budget.target_error:g}"] if budget.target_error is not None else []),
    ]
    return " or ".join(parts)


def _volume(text: str) -> tuple[int, int, int, int]:
    numbers = _numbers("--volume", text, "four integers as in 12,12,12,4")
    if len(numbers) != 4 or any(n != int(n) for n in numbers):
        raise _refused("--volume", text, "four integers as in 12,12,12,4")
    x, y, z, t = (int(n) for n in numbers)
    return x, y, z, t


def _numbers(option: str, text: str, wanted: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise _refused(option, text, wanted) from None


def _refused(option: str, text: str, wanted: str) -> Exception:
    from metalforge.core.errors import SpecError

    return SpecError(f"`{option}` must be {wanted}. Got {text}")
