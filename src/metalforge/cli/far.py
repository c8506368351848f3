"""`scan --cluster`, `resume` of such a campaign, and `attach`: a campaign that runs elsewhere, watched from here."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout, suppress
from functools import partial
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metalforge.core import Closing, ClusterLostError

from .apart import Apart, Tell
from .guard import AGAIN
from .output import Json, print_json, print_records, print_text
from .scan import CLUSTERS, Directory, _cluster_of, _say, live_page, note_finished, note_what_is_kept, page_hint

if TYPE_CHECKING:
    from metalforge.campaign import CampaignSpec, Extension, Results
    from metalforge.cluster import Outcome

LOOK_S, UNSEEN_S, HEAD_S = 0.5, 1.0, 3.0
"""Between two questions to the supervisor, where nobody sees its answers before it is over, and to the head."""
PATIENCE_S = 60.0
"""That a supervisor may take to come back before the cluster is given up."""
STARTING_S = 300.0
"""That it may take to say its first word: its process begins beside whatever else the machine does."""


def scan_far(spec: "CampaignSpec", directory: Path, *, detach: bool, live: bool, as_json: bool) -> None:
    """Begin a campaign on a cluster; `live` serves its page here, where its supervisor keeps the journal."""
    from metalforge.campaign import JOURNAL
    from metalforge.core import SpecError

    directory = directory.resolve()
    if (directory / JOURNAL).exists():
        raise SpecError(f"{directory}: a campaign is there\nhint: metalforge resume {directory} goes on with it")
    if live:
        directory.mkdir(parents=True, exist_ok=True)
    carry_out = partial(_far, spec.running.cluster, directory, begin={"spec": spec}, detach=detach, as_json=as_json)
    child = Apart(carry_out, directory)  # before the page has threads, which a fork does not copy
    try:
        with live_page(directory, live, as_json):
            child.wait()
    finally:
        if live:
            with suppress(OSError):
                directory.rmdir()  # one that nothing came of


def resume_far(directory: Path, cluster: str, more: "Extension", *, as_json: bool) -> None:
    """Go on with a campaign on a cluster; of one that is finished, and of which no more is asked, print the result."""
    directory = directory.resolve()
    found = None if more.asks_for_more else _finished(directory)
    if found is not None:
        note_finished(found.state, directory)
        _attach(directory, cluster, as_json=as_json)
        return
    Apart(partial(_far, cluster, directory, begin={"spec": None, "more": more}, as_json=as_json), directory).wait()


def attach(
    directory: Directory,
    cluster: Annotated[str | None, typer.Option(help=f"{CLUSTERS} Default: the one of its spec.")] = None,
    as_json: Json = False,
) -> None:
    """Come back to a campaign that runs on a cluster: watch it, stop it with Ctrl-C, see how it ended."""
    directory = directory.resolve()
    _attach(directory, _cluster_of(directory, cluster), as_json=as_json)


def _attach(directory: Path, cluster: str, *, as_json: bool) -> None:
    from metalforge.core import PlacementError, PluginError, SpecError

    found = _finished(directory)

    def carry_out(tell: Tell) -> None:
        try:
            if not cluster:
                raise SpecError(
                    f"{directory}: was not begun on a cluster, or is not seen from here"
                    "\nhint: metalforge watch looks at one on this machine; --cluster says where another one is"
                )
            # Of one that is over, too: its supervisor waits to be asked, and a cluster of its own to be stopped.
            _far(cluster, directory, tell, as_json=as_json)
        except (PlacementError, PluginError, SpecError):
            if found is None:
                raise
            _say(found, as_json)

    Apart(carry_out, directory).wait()


def _finished(directory: Path) -> "Results | None":
    """Return what a campaign found, if it is seen from here and finished."""
    from metalforge.campaign import JOURNAL, load

    found = load(directory) if (directory / JOURNAL).exists() else None
    return found if found is not None and found.state.finished is not None else None


def leave(
    cluster: Annotated[str, typer.Option(help=f"{CLUSTERS} That of this machine without.")] = "auto",
    grace: Annotated[float, typer.Option(help="Seconds that campaigns have for it.")] = 60.0,
    reason: Annotated[str, typer.Option(help="Why, for their journals.")] = "its machine is taken away",
    as_json: Json = False,
) -> None:
    """Let all campaigns give this machine up before it goes: chains are saved and go on on others.

    For the notice that a preempted machine gets, as a hook of its shutdown.
    """
    from metalforge.cluster import ClusterAddress, joining, supervisor
    from metalforge.core import SpecError

    if not 0 <= grace < inf:
        raise SpecError(f"`--grace` must be seconds, 0 or more. Got {grace}")
    address = ClusterAddress.parse(cluster)
    ray = joining.join(address, Path())
    try:
        asked, left = supervisor.leave_node(ray, ray.get_runtime_context().get_node_id(), reason, grace)
    finally:
        joining.leave(ray, address, Path(), stop=False)
    if as_json:
        print_json({"campaigns": asked, "left": left})
    else:
        print_text(f"{asked - left} of {asked} campaigns with work here have given it up")
    if left:
        raise typer.Exit(1)


def show_nodes(cluster: str, as_json: bool) -> None:
    """List the nodes of a cluster with what campaigns would have there."""
    from metalforge.cluster import ClusterAddress, joining, nodes

    address = ClusterAddress.parse(cluster)
    with TemporaryDirectory() as folder, redirect_stdout(sys.stderr):  # Ray prints what happens to nodes
        ray = joining.join(address, Path(folder))
        try:
            there, found = nodes.live_nodes(ray), nodes.look(ray)
        finally:
            joining.leave(ray, address, Path(folder), stop=True)
    level = nodes.common_level(found)
    cores, records, rows = 0, [], []
    for node, facts in zip(there, found, strict=True):
        count, memory = (int(node["Resources"].get(name, 0)) for name in ("CPU", "memory"))
        cores += count
        known = {"node": node["NodeID"], "host": facts.host, "cores": count, "memory_bytes": memory}
        records.append(known | {"levels": facts.levels, "substrates": [info.record() for info in facts.silicon]})
        silicon = ", ".join(f"{info.name}: {info.model}" for info in facts.silicon)
        rows.append((facts.host, str(count), silicon, f"{memory / 2**30:.1f} GiB", facts.levels[-1]))
    columns = ("node", "cores", "silicon", "memory", "kernels")
    print_records(as_json, {"nodes": records, "level": level}, f"nodes of {address}", columns, rows)
    if not as_json:
        print_text(f"{cores} cores on {len(rows)} nodes; campaigns run the kernels at level {level}")


def _far(
    cluster: str,
    directory: Path,
    tell: Tell,
    *,
    begin: "dict[str, Any] | None" = None,
    detach: bool = False,
    as_json: bool,
) -> None:
    """Watch a campaign and print how it ended, or leave it to the cluster.

    With the `spec` of a new one, or what `more` is asked of one, it is begun here; without, it must run there already.
    """
    from metalforge.cluster import ClusterAddress, joining, supervisor
    from metalforge.core import SpecError
    from metalforge.pipeline import first_line

    address, over = ClusterAddress.parse(cluster), False
    with redirect_stdout(sys.stderr):  # Ray prints what happens to nodes
        ray = joining.join(address, directory, start=begin is not None)
        try:
            actor = supervisor.find(ray, directory)
            if begin is None and actor is None:
                raise SpecError(
                    f"{directory}: nobody runs it there\nhint: metalforge resume {directory} goes on with it"
                )
            if begin is not None:
                if actor is not None:
                    if _Asking(ray, directory)(actor.outcome.remote) is None:
                        raise SpecError(
                            f"{directory}: is running there\nhint: metalforge attach {directory} looks at it"
                        )
                    supervisor.end(ray, directory, actor)
                actor = supervisor.begin(ray, directory, command=("metalforge", *sys.argv[1:]), **begin)
            sys.stderr.write(f"campaign in {directory}, on {address}\n{page_hint(directory)}\n")
            if detach:
                sys.stderr.write(f"metalforge attach {directory} comes back to it\n")
                return
            outcome = _watch(ray, actor, directory, tell, as_json)
            over = True
            tell(False)
            supervisor.end(ray, directory, actor)
        except ray.exceptions.RayError as lost:
            raise ClusterLostError(f"{directory}: the cluster at {address} failed: {first_line(lost)}") from lost
        finally:
            joining.leave(ray, address, directory, stop=over)
    if (error := outcome.error) is not None:
        note_what_is_kept(error, directory)
        raise error from (OSError(outcome.number, os.strerror(outcome.number)) if outcome.number else None)
    if outcome.kind == "interrupted":
        sys.stderr.write(f"interrupted ({outcome.reason}); go on with: metalforge resume {directory}\n")
        raise typer.Exit(AGAIN)
    _say(outcome, as_json)


def _watch(ray: Any, actor: Any, directory: Path, tell: Tell, as_json: bool) -> "Outcome":
    """Show a campaign until it is over; return how it ended."""
    from .live import LiveView

    asked: list[str] = []

    def stop(number: int, frame: FrameType | None) -> None:
        asked.append(signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        signal.signal(number, stop)
    ask = _Asking(ray, directory)
    with nullcontext() if as_json else LiveView() as live, _Head(ray) as head:
        while (outcome := ask(actor.outcome.remote)) is None:
            if head.answers:
                tell(True)
            if asked:  # again and again: a supervisor that died since does not know
                ask(lambda: actor.interrupt.remote(asked[0]))
            if live is not None and (view := ask(actor.view.remote)) is not None:
                live.show(view)
            time.sleep(LOOK_S if live is not None else UNSEEN_S)
    ended: Outcome = outcome
    return ended


class _Head(Closing):
    """Asks the cluster's head from a thread, since it may never answer; the supervisor answers also without it."""

    def __init__(self, ray: Any) -> None:
        self._ray, self._heard, self._over = ray, time.monotonic(), threading.Event()
        threading.Thread(target=self._ask, daemon=True).start()

    @property
    def answers(self) -> bool:
        """Whether it has answered lately."""
        return time.monotonic() - self._heard < 2 * HEAD_S

    def _ask(self) -> None:
        from metalforge.cluster import live_nodes

        while not self._over.wait(HEAD_S):
            with suppress(Exception):  # Ray's, of any kind, while it is lost or left
                live_nodes(self._ray)
                self._heard = time.monotonic()

    def close(self) -> None:
        """Ask no more."""
        self._over.set()


class _Asking:
    """Asks the supervisor, through its deaths: it comes back, and the journal has what was done."""

    def __init__(self, ray: Any, directory: Path) -> None:
        self._ray, self._directory = ray, directory
        self._heard = time.monotonic()
        self._starting = True

    def __call__(self, question: Callable[[], Any]) -> Any:
        from metalforge.pipeline import first_line

        while True:
            try:
                answer = self._ray.get(question(), timeout=PATIENCE_S)
            except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError) as error:
                silent = self._starting and isinstance(error, self._ray.exceptions.GetTimeoutError)
                if time.monotonic() - self._heard > (STARTING_S if silent else PATIENCE_S):
                    lost = ClusterLostError(f"the campaign's supervisor is gone: {first_line(error)}")
                    note_what_is_kept(lost, self._directory)
                    raise lost from error
                time.sleep(LOOK_S)
            else:
                self._heard, self._starting = time.monotonic(), False
                return answer
