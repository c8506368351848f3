"""What a campaign spent, in words: joules by substrate and source, device time and, apart from it, the emulator's."""

from metalforge.core.quantities import Modelled, Quantity

from .result import CampaignResult, EnergyResult
from .words import substrate_text

__all__ = ["device_times", "energy_lines", "host_of", "per_joule"]


def energy_lines(entry: EnergyResult) -> list[tuple[str, str, str, str, str]]:
    """Return the lines of one entry: substrate, source, what it is, how much, and where the number comes from."""
    name = substrate_text(entry.substrate)
    if entry.emulation_s is not None:
        how = "processor time that the emulator took of the host, measured"
        return [(name, entry.source, "emulation", f"{entry.emulation_s:.2f} s", how)]
    if entry.held_s is None:
        return [(name, entry.source, "in all", *_joules(entry.energy, entry.reason))]
    work = "above idle" if entry.idle is not None else "while it worked"
    spent, how = _joules(entry.energy, entry.reason)
    idle, why = _joules(entry.idle, entry.reason)
    took = "" if entry.busy is None else f", {entry.busy.value:.2f} s of device time"
    held = f", {entry.held_s:.1f} s of wall time in which the campaign held the board"
    return [(name, entry.source, work, spent, how + took), (name, entry.source, "idle", idle, why + held)]


def host_of(substrate: str | None) -> str:
    """Return where a stage's measured time was spent: that of an emulated device is the host's."""
    name = substrate_text(substrate)
    return f"host, as {name}" if "emulated" in name else name


def device_times(result: CampaignResult) -> list[str]:
    """Return how long each emulated board would have worked, and apart from it what the emulation took."""
    emulation = sum(e.emulation_s for e in result.energy if e.emulation_s is not None)
    return [
        f"Device time of {substrate_text(e.substrate)}: {e.busy.value:.2f} s of the {e.held_s:.1f} s for which the "
        f"board was held, or {e.busy.value / e.held_s:.1%} (modelled: {e.busy.profile}). Apart from that, its "
        f"emulation took {emulation:.2f} s of this host's processor time (measured)."
        for e in result.energy
        if isinstance(e.busy, Modelled) and e.held_s
    ]


def per_joule(result: CampaignResult) -> str:
    """Return effective samples per joule, if every substrate's energy is known and from one source."""
    entries = [entry for entry in result.energy if entry.emulation_s is None]
    kinds = {entry.source for entry in entries}
    joules = sum(part.value for entry in entries for part in (entry.energy, entry.idle) if part is not None)
    if len(kinds) == 1 and kinds <= {"measured", "modelled"} and joules > 0:
        return f"That is {result.effective_per_second * result.seconds / joules:.3g} per joule ({kinds.pop()})."
    return "There is no figure per joule: that needs the energy of every substrate, from one kind of source."


def _joules(energy: Quantity | None, reason: str) -> tuple[str, str]:
    if energy is None:
        return "unknown", reason
    how = f"modelled: {energy.profile}" if isinstance(energy, Modelled) else f"measured: {energy.how}"
    return f"{energy.value:.4g} {energy.unit}", how
