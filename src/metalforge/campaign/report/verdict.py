"""What a campaign found, in lines for a terminal: numbers that are established, intervals with warnings, evidence."""

from collections.abc import Iterator, Sequence

from metalforge.campaign.physics.evidence import Evidence
from metalforge.statistics.estimate import with_error

from .comparison import quality
from .result import CampaignResult, VolumeResult
from .words import interval_text, item_text, lattice_name

__all__ = ["verdict_lines"]


def verdict_lines(result: CampaignResult) -> Iterator[str]:
    """Give the lines: the headline first, then every volume with its evidence.

    A number that is not established does not stand there bare: an interval does, and what it lacks.
    """
    if (fit := result.extrapolation) is not None:
        yield from _stated("infinite volume", fit.beta_c, fit.error, result.line_evidence)
        yield f"  {quality(fit)}"
    if result.finite_size is not None:
        yield from (f"  {caution}" for caution in result.finite_size.cautions)
    for volume in result.volumes:
        yield from _volume(volume)
    if result.recomputed:
        yield "the journal is from before evidence was asked for: this verdict was computed now, by the rules of now"


def _volume(volume: VolumeResult) -> Iterator[str]:
    name, found = lattice_name(volume.dims), volume.transition
    if found is None:
        yield f"beta_c({name}): not located"
        yield from (f"  lacking: {item_text(item)}" for item in volume.evidence if not item.holds)
        return
    yield from _stated(name, found.beta_c, found.error, volume.evidence)
    yield from (f"  {'holds' if item.holds else 'lacks'}: {item_text(item)}" for item in volume.evidence)


def _stated(name: str, value: float, error: float, evidence: Sequence[Evidence]) -> Iterator[str]:
    if all(item.holds for item in evidence):
        yield f"beta_c({name}) = {with_error(value, error)}, established"
        return
    lacking = ", ".join(item.name for item in evidence if not item.holds)
    yield f"beta_c({name}): not established; the data so far point to {interval_text(value, error)} (one error)"
    yield f"  not to be quoted, for lack of: {lacking}"
