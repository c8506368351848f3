"""`doctor`, `devices` and `route`: what this machine has, what it misses, where a workload would run and why."""

import platform
from pathlib import Path
from typing import Annotated

import typer

from metalforge import __version__, native, substrates
from metalforge.cluster import cluster_requirements
from metalforge.core import Discovery, PlacementError, Substrate, Workload, extras
from metalforge.substrates import Decision, Policy, fp64_choices

from .output import Json, print_json, print_table, print_text


def doctor(as_json: Json = False) -> None:
    """Say what this machine has, what is missing and the command that adds it; test the kernels."""
    found = substrates.discover()
    checks = native.selftest()
    strategies = fp64_choices(found.substrates)
    cluster = cluster_requirements()
    if as_json:
        print_json(
            {
                "version": __version__,
                "python": platform.python_version(),
                "platform": platform.platform(),
                "isa": native.level(),
                "isa_available": native.available_levels(),
                "openmp": native.openmp(),
                "threads": native.default_threads(),
                "substrates": [s.info.record() for s in found.substrates],
                "missing": found.missing,
                "extras": extras(),
                "cluster": cluster,
                "checks": [check._asdict() for check in checks],
                "fp64": strategies,
            }
        )
    else:
        print_text(f"metalforge {__version__}, Python {platform.python_version()}, {platform.platform()}")
        print_text(
            f"kernels: level {native.level()} of {', '.join(native.available_levels())}; "
            f"{native.default_threads()} threads"
        )
        print_text()
        _show_substrates(found)
        print_table("Extras", ("extra", "state"), list(extras().items()))
        print_table(
            "For clusters", ("package", "what for", "state"), [(r.package, r.purpose, r.state) for r in cluster]
        )
        rows = [("passed" if c.passed else "FAILED", c.name, c.detail) for c in checks]
        print_table("Kernel self-test", ("", "check", "detail"), rows)
        if strategies:
            lines = [(name, str(choice["line"])) for name, choice in strategies.items()]
            print_table("Trajectories in double precision", ("card", "strategy"), lines)
    if not all(check.passed for check in checks):
        raise typer.Exit(1)


def devices(
    cluster: Annotated[
        str | None, typer.Option(help="A cluster's nodes instead: auto, ray://HOST:10001, local:3x2.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the substrates of this machine with their capabilities and energy meters, or the nodes of a cluster."""
    if cluster is not None:
        from .far import show_nodes

        show_nodes(cluster, as_json)
        return
    found = substrates.discover()
    if as_json:
        metered = [
            s.info.record() | {"meter": {"name": meter.name, "unavailable": meter.unavailable()}}
            for s in found.substrates
            for meter in [s.meter()]
        ]
        print_json({"substrates": metered, "missing": found.missing})
        return
    _show_substrates(found)
    for substrate in found.substrates:
        meter = substrate.meter()
        rows = [(key, _number(key, value)) for key, value in substrate.info.properties.items()]
        rows.append(("energy meter", meter.name + (f": {why}" if (why := meter.unavailable()) else "")))
        print_table(f"{substrate.info.name}: {substrate.info.model}", ("property", "value"), rows)


def route(
    workload: Annotated[
        str | None, typer.Argument(help="A workload's name or a TOML file; without it, all workloads.")
    ] = None,
    policy: Annotated[str, typer.Option(help="latency, energy or origin.")] = Policy.LATENCY.value,
    ignore_preference: Annotated[
        bool, typer.Option("--ignore-preference", help="Let the policy choose among all kinds of silicon.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say where a workload would run and why, and what was turned down."""
    found = substrates.discover().substrates
    if workload is None:
        everywhere = [_try_route(w, found, policy, ignore_preference) for w in substrates.WORKLOADS.values()]
        if as_json:
            print_json([_decision_record(d) if isinstance(d, Decision) else d for d in everywhere])
        else:
            _show_decisions(everywhere)
        return
    load = substrates.load_workload(Path(workload)) if workload.endswith(".toml") else substrates.workload(workload)
    decision = substrates.route(load, found, policy, ignore_preference=ignore_preference)
    if as_json:
        print_json(_decision_record(decision))
        return
    print_text(f"{load.name}: {load.summary}")
    print_text(f"needs {', '.join(c.label for c in load.needs)}; priced for {load.size or 'one call'}")
    print_text(f"-> {decision.substrate.name} ({decision.substrate.model}): {decision.reason}")
    print_text(f"   {decision.cost}")
    if decision.rejected:
        print_text()
        rows = [(r.name, r.reason, str(r.cost or "")) for r in decision.rejected]
        print_table("Turned down", ("substrate", "why", "cost per call"), rows)


def _try_route(
    load: Workload, found: tuple[Substrate, ...], policy: str, ignore_preference: bool
) -> Decision | dict[str, str]:
    try:
        return substrates.route(load, found, policy, ignore_preference=ignore_preference)
    except PlacementError as error:
        return {"workload": load.name, "policy": policy, "unplaceable": str(error)}


def _decision_record(decision: Decision) -> dict[str, object]:
    return {
        "workload": decision.workload,
        "policy": decision.policy,
        "substrate": decision.substrate.name,
        "kind": decision.substrate.kind,
        "reason": decision.reason,
        "cost": decision.cost,
        "rejected": decision.rejected,
    }


def _show_decisions(decisions: list[Decision | dict[str, str]]) -> None:
    rows = [
        (d.workload, d.substrate.name, d.reason, str(d.cost.latency or d.cost.unknown))
        if isinstance(d, Decision)
        else (d["workload"], "-", d["unplaceable"].split("\n")[0].rstrip(":"), "")
        for d in decisions
    ]
    print_table("Where the workloads would run", ("workload", "substrate", "why", "latency of a call"), rows)


def _show_substrates(found: Discovery) -> None:
    infos = [substrate.info for substrate in found.substrates]
    rows = [(i.kind.value, i.name, i.model, " ".join(c.label for c in i.capabilities)) for i in infos]
    print_table("Substrates", ("kind", "name", "model", "capabilities"), rows)
    if found.missing:
        missing = [(m.what, m.reason, m.remedy) for m in found.missing]
        print_table("Missing", ("what", "why", "what to do"), missing)


def _number(key: str, value: str | float | bool) -> str:
    if key.endswith("_bytes") and isinstance(value, int):
        return f"{value:,} ({value / 2**20:,.0f} MiB)" if value >= 2**20 else f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
