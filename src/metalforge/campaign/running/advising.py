"""The advisor of a campaign: opened as its theory says, sent every row on its way to the journal, and noted there."""

import hashlib
from pathlib import Path

from metalforge.campaign.orderings import AUTO, arrange
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.records import Decided
from metalforge.core import Advisor, ChainPlace, SpecError, opened, read_bytes, replacing

from .book import Book
from .orders import Block, Hear, pass_over

PROFILE = "akd1000-published"
"""The emulated device of `screening.device = "npu"`."""
KEPT = "weights.safetensors"
"""The copy of a user's weights in a campaign's directory."""
WEIGHTS = "weights"
"""The decision that names them."""


def screens(spec: CampaignSpec) -> bool:
    """Return whether a campaign may have a screen: one that tries all orderings has."""
    if not spec.theory.screened:
        return False
    return spec.ordering == AUTO or arrange(spec.ordering, spec.theory.systems, {"": 0}).screens


def on_device(spec: CampaignSpec) -> bool:
    """Return whether the network of a campaign runs on the device, and not in software."""
    return spec.screening.device == "npu" and screens(spec)


def open_advisor(spec: CampaignSpec, directory: Path, book: Book) -> Advisor | None:
    """Return the advisor of a campaign; None where its theory has none. A user's weights are copied to the campaign."""
    given = spec.screening.weights
    weights = kept_weights(Path(given), directory, book) if given else None
    return spec.theory.advisor(profile=PROFILE if on_device(spec) else "", weights=weights)


def kept_weights(path: Path, directory: Path, book: Book) -> Path:
    """Return the campaign's own copy of weights, which must be the one it began with."""
    kept = directory / KEPT
    if not kept.exists():
        with opened(path) as (stream, _), replacing(kept) as copy:
            copy.write(stream.read())
    sha256 = hashlib.sha256(read_bytes(kept)).hexdigest()
    known = next((d.reason for d in book.state.decisions if d.what == WEIGHTS), None)
    if known is None:
        book.write(Decided(what=WEIGHTS, by="user", reason=f"sha256 {sha256}"))
    elif known != f"sha256 {sha256}":
        raise SpecError(f"{kept}: not the weights that the campaign began with ({known})\nhint: put the file back")
    return kept


def observer(advisor: Advisor | None, book: Book) -> Hear:
    """Return what tells an advisor the rows of every block, with those before where a chain was taken up."""
    if advisor is None:
        return pass_over

    def hear(block: Block) -> None:
        if not block.took:
            advisor.observe(block.chain, block.segments)
            return
        with book.reading() as state:
            known = state.chains[block.chain]
            past = list(known.segments())
        place = ChainPlace(known.system, known.coordinate, known.start)
        advisor.observe(block.chain, [*past, *block.segments], place)

    return hear


def note_heads(book: Book, advisor: Advisor | None) -> None:
    """Write once, for every head, whether it is acted on, and why not."""
    if advisor is not None and not book.state.heads:
        for head in advisor.standings:
            book.write(Decided(what="head", by=head.name, reason=head.reason, value=head.skill, trusted=head.acts))


def note_trouble(book: Book, advisor: Advisor | None) -> None:
    """Write why a chain could not be read, if one could not."""
    if advisor is not None and advisor.trouble:
        book.write(Decided(what="reader", by="advisor", reason=advisor.trouble))
