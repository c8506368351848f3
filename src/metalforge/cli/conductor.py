"""`conductor adopt`: what campaigns teach the heads."""

from pathlib import Path
from typing import Annotated

import typer

from .output import Json, print_json, print_table

app = typer.Typer(help="Heads that watch a running chain.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def conductor() -> None:
    """Heads that watch a running chain."""


@app.command()
def adopt(
    directories: Annotated[list[Path], typer.Argument(help="Directories of campaigns.", metavar="DIR...")],
    out: Annotated[Path, typer.Option(help="Where the new weights go (safetensors), with how they were made.")],
    weights: Annotated[Path | None, typer.Option(help="Weights to begin at; those of the package without.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write heads that became worse, too.")] = False,
    as_json: Json = False,
) -> None:
    """Fold campaigns into weights: readouts follow their chains, judged on campaigns that were left out.

    A head is taken over where it became better there; where none did, nothing is written. Campaigns act on it only
    where its skill there is positive beyond its interval, over at least five campaigns.
    """
    import msgspec

    from metalforge.conductor import (
        SCHEMA,
        Provenance,
        read_provenance,
        save_with_provenance,
        shipped_provenance,
        shipped_weights,
        standings_of,
    )
    from metalforge.conductor import adopt as fold_in
    from metalforge.lattice import taught_by
    from metalforge.reservoir import expect_features, load_weights

    known = shipped_weights() if weights is None else load_weights(weights)
    expect_features(known, SCHEMA)
    made = shipped_provenance() if weights is None else read_provenance(weights)
    taught = [taught_by(directory, known) for directory in directories]
    found = fold_in(known, [campaign.chains for campaign in taught], force=force)
    names = " ".join(str(directory) for directory in directories)
    origin = msgspec.structs.replace(
        made or Provenance(command=f"weights of {weights}", seed=0, corpus_seed=0, corpus_sha256=""),
        campaigns=(*(made.campaigns if made else ()), *(campaign.sha256 for campaign in taught)),
    )
    adopted = {head.name: head for head in (*origin.adopted, *found.heads) if head.adopted}
    origin = msgspec.structs.replace(origin, adopted=tuple(adopted.values()))
    origin = msgspec.structs.replace(origin, command=f"{origin.command}; metalforge conductor adopt {names}")
    save_with_provenance(found.weights, origin, out)
    standings = standings_of(out)
    if as_json:
        print_json({"file": str(out), "heads": found.heads, "standings": standings, "provenance": origin})
        return
    rows = [
        (h.name, str(h.campaigns), str(h.chains), f"{h.before:.3g}", f"{h.after:.3g}", f"{h.baseline:.3g}",
         f"{h.skill_before:+.2f}", f"{h.skill_after:+.2f}", "yes" if h.adopted else "no, stays as it was")
        for h in found.heads
    ]  # fmt: skip
    columns = ("head", "campaigns", "chains", "rms before", "after", "baseline", "skill before", "after", "adopted")
    print_table("Heads on campaigns that were left out", columns, rows)
    acting = [(one.name, "yes" if one.acts else "no", one.reason) for one in standings]
    print_table("Heads that campaigns with these weights act on", ("head", "acts", "why"), acting)
