"""What a program costs on a device, modelled from its profile: seconds and joules of a call, an update, a load.

A call of n inputs takes n (R rho(n) + G), with the round trip R = `call_s`, the growth G of the program's layers and
rho, the share of the round trip that is left for each input of a batch:

- A layer of N inputs and U units counts as a square one of width sqrt(N U): the tail of the width table grows with the
  square of the width, that is with the weights. It adds table(width) - smallest entry, interpolated between entries on
  logarithmic scales and continued beyond the last; narrower than the smallest entry it adds nothing. Layers add up,
  and each after the first adds `layer_s`.
- rho(n) = (t(n) - G') / (t(1) - G'), where t is the batch table and G' the growth of the network it was timed with;
  linear in log n in between, and never so small that a batch would take less than one of its inputs. Growth does not
  shrink with the batch: weights are read again for every input.
- Energy is power times time, of the whole board under `akd1000-published`. Costs are those of the fastest clock mode.
- A board draws its idle power as long as it is held, whether it is called or not (`board_energy`).

The published series disagree among themselves (650 us against 779, 700 and 812 us for widths up to 256), so no model
meets them all. This one keeps the round trip exact; `FIT_ERROR` is how far it is from the tables, always below them.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from math import exp, log, sqrt
from typing import NamedTuple

from metalforge.core import Cost, Modelled, SpecError
from metalforge.substrates.profiles import DeviceProfile, TimeTable
from metalforge.substrates.profiles import profile as find_profile

from .device import Statistics, image_bytes
from .program import Encoding, Program, ProgramError

FIT_ERROR = {"widths": 0.17, "batches": 0.08}
"""Largest relative distance between `akd1000-published` and this model, by table. The width of 64, which lies above
that of 128, makes the first; without it 0.08 would do."""


class BoardEnergy(NamedTuple):
    """Joules of a board that was held for a while: what it drew for being there, and what its work added to that.

    `idle` is None where the profile states no idle power; `above_idle` is then all that the calls were charged.
    """

    idle: Modelled | None
    above_idle: Modelled


def cost(program: Program, batch: int = 1, profile: DeviceProfile | str = "akd1000-published") -> Cost:
    """Return seconds and joules of sending `batch` rows through a program.

    Rows are what the chip sees: 8-bit activations are two nibble rows. More rows than the profile's largest batch go
    in several calls.
    """
    device = find_profile(profile)
    return _priced(call_seconds(program, batch, device), device)


def programs_cost(programs: Iterable[Program], profile: DeviceProfile, vectors: int = 1) -> Cost:
    """Return seconds and joules of one call of each program with so many vectors, in the rows of its encoding."""
    return Cost.total(cost(program, vectors * program.encoding.rows, profile) for program in programs)


def shape_seconds(lines: int, outputs: int, encoding: Encoding, vectors: int, profile: DeviceProfile) -> float:
    """Return the seconds of one call of a layer that is known by its shape only."""
    return _seconds((lines, outputs * encoding.digits), vectors * encoding.rows, profile)


def update_cost(n_bytes: int = 0, profile: DeviceProfile | str = "akd1000-published") -> Cost:
    """Return seconds and joules of replacing a variable: the profile's figure, or the transfer where that is longer."""
    device = find_profile(profile)
    return _priced(max(device.call.weight_update_s.value, _transfer_s(n_bytes, device)), device)


def load_cost(program: Program, profile: DeviceProfile | str = "akd1000-published") -> Cost:
    """Return seconds and joules of putting a program on the device: its bytes over the link."""
    device = find_profile(profile)
    if device.call.link_bytes_per_s is None:
        return Cost(unknown=f"{device.name} says nothing of transfers")
    return _priced(_transfer_s(image_bytes(program), device), device)


def board_energy(
    done: Statistics, held_s: float, profile: DeviceProfile | str = "akd1000-published"
) -> BoardEnergy | None:
    """Return the joules of a board that was held for `held_s` seconds of wall time; None where they are not modelled.

    With E and T the energy and time of its calls, updates and loads, and P the idle power of the whole board,

        E_idle = P max(held, T)          E_above = E - P T

    so that the two add up to what the board drew. Emulated work may end sooner than the board would: held is then T.
    """
    device = find_profile(profile)
    if done.energy is None or done.busy is None:
        return None
    if device.call.idle_power_w is None:
        return BoardEnergy(None, done.energy)
    idle_w = device.call.idle_power_w.value
    return BoardEnergy(
        idle=Modelled(value=idle_w * max(held_s, done.busy.value), unit="J", profile=device.name),
        above_idle=Modelled(
            value=max(done.energy.value - idle_w * done.busy.value, 0.0), unit="J", profile=device.name
        ),
    )


def call_seconds(program: Program, batch: int, device: DeviceProfile) -> float:
    """Return the seconds of sending `batch` rows through a program, as a plain number for the ledger."""
    return _seconds((program.inputs, *(layer.units for layer in program.layers)), batch, device)


def _seconds(lines: tuple[int, ...], batch: int, device: DeviceProfile) -> float:
    """Return the seconds of a call of `batch` rows, for a program of so many lines: inputs, then units by layer."""
    if batch < 1:
        raise ProgramError(f"a call has at least one input. Got {batch}")
    growth = _growth(lines, device)
    full, rest = divmod(batch, device.call.max_batch.value)
    calls = ((full, device.call.max_batch.value), (1, rest))
    return sum(k * (n * (device.call.call_s.value * _share(n, device) + growth)) for k, n in calls if k * n)


def _priced(seconds: float, device: DeviceProfile) -> Cost:
    return Cost(
        latency=Modelled(value=seconds, unit="s", profile=device.name),
        energy=Modelled(value=seconds * device.call.power_w.value, unit="J", profile=device.name),
    )


def _transfer_s(n_bytes: int, device: DeviceProfile) -> float:
    link = device.call.link_bytes_per_s
    return n_bytes / link.value if link else 0.0


@lru_cache(maxsize=256)
def _growth(lines: tuple[int, ...], device: DeviceProfile) -> float:
    """Return what a chain adds to the round trip of one input, from its numbers of lines."""
    extra = (len(lines) - 2) * device.call.layer_s.value if device.call.layer_s else 0.0
    if device.widths is None:
        return extra
    return extra + sum(_wider(sqrt(n * u), device.widths) for n, u in pairwise(lines))


def _wider(width: float, table: TimeTable) -> float:
    """Return what a square layer of this width takes above the quickest of the table."""
    quickest = min(range(len(table.rows)), key=lambda i: table.rows[i][1])
    rows = table.rows[quickest:]
    if width <= rows[0][0] or len(rows) < 2:
        return 0.0
    (w0, t0), (w1, t1) = next(((a, b) for a, b in pairwise(rows) if width <= b[0]), rows[-2:])
    slope = log(t1 / t0) / log(w1 / w0)
    try:
        return t0 * exp(slope * log(width / w0)) - rows[0][1]
    except OverflowError as error:
        raise SpecError(f"`widths` rises too steeply to be continued to {width:g}: {t0:g} s, then {t1:g} s") from error


@lru_cache(maxsize=256)
def _share(batch: int, device: DeviceProfile) -> float:
    """Return the part of a round trip that falls on each of a batch's inputs: 1 for a single one."""
    if device.batches is None:
        return 1.0
    growth = _growth(device.batches.network, device)
    rows = [(n, t - growth) for n, t in device.batches.rows]
    if min(t for _, t in rows) <= 0:
        raise SpecError(f"{device.name}: `batches` is quicker than `widths` allows for the network it was timed with")
    for (n0, t0), (n1, t1) in pairwise(rows):
        if n0 <= batch <= n1:
            part = log(batch / n0) / log(n1 / n0)
            return max((t0 + part * (t1 - t0)) / rows[0][1], 1 / batch)
    return rows[-1][1] / rows[0][1]
