"""A campaign from a spec to its numbers, and back from its directory: what `from metalforge import campaign` gives.

found = run("tiny", "DIR")           a preset, a file or a spec; without a directory nothing is kept
found.value, found.error, found.established
again = load("DIR")                  in another process, or years later: the same digits
again.rows["c0000"]["energy"]        every update of a chain, as NumPy arrays
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from metalforge.core import PathLike

from .extending import Extension
from .report.result import Results
from .running.campaign import Campaign
from .spec import CampaignSpec, load_spec, preset, presets
from .state import Fold
from .store.directory import JOURNAL
from .store.reading import read_journal


def spec_of(wanted: CampaignSpec | PathLike) -> CampaignSpec:
    """Return a spec as it is, that of a preset's name, or that of a TOML file."""
    if isinstance(wanted, CampaignSpec):
        return wanted
    # Whatever cannot be a file is taken for a preset, so that a typo lists the presets there are.
    if isinstance(wanted, str) and (wanted in presets() or not (wanted.endswith(".toml") or Path(wanted).exists())):
        return preset(wanted)
    return load_spec(Path(wanted))


def run(spec: CampaignSpec | PathLike, directory: PathLike | None = None) -> Results:
    """Run a campaign to its end: a spec, a TOML file or a preset's name, in a new directory or in none."""
    wanted = spec_of(spec)
    if directory is None:
        with TemporaryDirectory(prefix="metalforge-") as folder:
            return Results(run(wanted, folder).state)
    with Campaign.open(wanted, Path(directory)) as campaign:
        return Results(campaign.run(), campaign.directory)


def resume(directory: PathLike, more: Extension | None = None) -> Results:
    """Go on with a campaign that was interrupted or killed, or with `more` extend one; run it to its end."""
    with Campaign.resume(Path(directory), more=more) as campaign:
        return Results(campaign.run(), campaign.directory)


def load(directory: PathLike) -> Results:
    """Return what the campaign of a directory has found, from its journal alone; it may still run."""
    folding = Fold(Path(directory))
    read_journal(Path(directory) / JOURNAL, folding)
    return Results(folding.state, Path(directory))
