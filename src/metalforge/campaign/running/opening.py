"""Opening and resuming the directory of a campaign: its lock, the spec in force, and where checkpoints are kept."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.spec import CampaignSpec, load_spec
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.chain_files import ChainFiles, CheckpointStoreError, chain_files, own_address
from metalforge.campaign.store.directory import DirectoryLock, sweep, writable_directory
from metalforge.campaign.store.records import Decided
from metalforge.core import SpecError, replacing
from metalforge.native import continues

from .book import Book
from .lanes import ChainLane


@contextmanager
def locked(directory: Path) -> Iterator[tuple[DirectoryLock, ExitStack]]:
    """Give the lock of a directory that can be written, and a stack; both are closed if the block fails."""
    writable_directory(directory)
    with ExitStack() as held:
        lock = held.enter_context(DirectoryLock(directory))
        sweep(directory)
        yield lock, held
        held.pop_all()


def check_bits(directory: Path, state: CampaignState, lanes: Sequence[ChainLane]) -> None:
    """Raise where no lane goes on bit for bit with a chain that is there."""
    made = {name for chain in state.chains.values() for name in chain.engines}
    for name in sorted(made):
        sums = state.spec.theory.sums_matter
        if not any(continues(one.engine, name, sums_matter=sums) for one in lanes):
            kind, _, build = name.partition(":")
            here = ", ".join(dict.fromkeys(lane.engine.name for lane in lanes))
            raise SpecError(
                f"{directory}: chains were run on {name}, this is {here}: they would not continue bit for bit\nhint: "
                + (f"set METALFORGE_ISA={build}" if kind == "cpu" else f"go on where {name} is: --substrate {name}")
            )


def edited_spec(directory: Path, spec: CampaignSpec) -> str:
    """Return a line that says what stands in `spec.toml` and is not in force; nothing where that is the same."""
    path = directory / "spec.toml"
    try:
        there = load_spec(path)
    except SpecError as error:
        return f"{error}" if path.exists() else ""
    one, other = (spec_text(each).splitlines() for each in (there, spec))
    changes = [f"`{edited}` for `{kept}`" for edited, kept in zip(one, other, strict=False) if edited != kept]
    if not changes:
        return ""
    return (
        f"{path}: was edited ({', '.join(changes)}), and the campaign goes on as it was begun"
        "\nhint: the options of metalforge resume extend it; for all else begin in another directory"
    )


def moved_checkpoints(directory: Path, kept: ChainFiles, book: Book, spec: CampaignSpec) -> str:
    """Copy checkpoints to the place that a spec names now, and return the campaign's address there.

    Of a place that is gone there is nothing to copy: chains are computed again, and must come out as they are written.
    """
    chain_files(directory, spec.running.checkpoints).prepare()
    address = own_address(spec.running.checkpoints, spec.name)
    try:
        chain_files(directory, address).take_over(kept, book.state.chains)
    except CheckpointStoreError as error:
        book.write(Decided(what="checkpoints", by="store", reason=error.first_line))
    return address


def write_spec(directory: Path, spec: CampaignSpec) -> None:
    """Write the resolved spec for people."""
    with replacing(directory / "spec.toml") as stream:
        stream.write(spec_text(spec).encode())
