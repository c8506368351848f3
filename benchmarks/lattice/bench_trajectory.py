"""What Python adds to a trajectory, and what two threads give.

Floor of the overhead: seven kernel calls per trajectory, some 2 us each, against about 4 ms of work on 8^3x4.
"""

from collections.abc import Iterator

from benchmarks.rows import BenchRow, best_of
from metalforge.core import Measured
from metalforge.lattice import Chain, ChainSpec, HmcSpec, scheme
from metalforge.lattice.field import Momenta


def chain_of(dims: tuple[int, int, int, int], threads: int) -> Chain:
    spec = ChainSpec(dims=dims, beta=5.7, algorithm="hmc", start="cold", hmc=HmcSpec(n_steps=8))
    chain = Chain(spec, threads=threads)
    for _ in range(3):
        chain.update(accept_always=True)
    return chain


def kernels_alone(chain: Chain) -> float:
    """Seconds of a trajectory's kernels, called one by one."""
    field = chain.field
    momenta, backup = Momenta(field), field.copy()
    stages = scheme("omelyan2").stages(1.0, 8)

    def copy() -> None:
        backup.assign(field)

    parts = (
        field.reunitarise,
        copy,
        lambda: momenta.refresh(seed=1, stream=0, step=1),
        lambda: field.action(5.7),
        momenta.kinetic,
        lambda: momenta.evolve(5.7, stages),
        lambda: field.action(5.7),
        momenta.kinetic,
        lambda: field.assign(backup),
    )
    return sum(best_of(part, repeats=5, minimum_s=0.02) for part in parts)


def rows() -> Iterator[BenchRow]:
    def rate(seconds: float, how: str) -> Measured:
        return Measured(value=1 / seconds, unit="trajectories/s", how=how)

    chain = chain_of((8, 8, 8, 4), 1)
    whole = best_of(lambda: chain.update(accept_always=True), repeats=5, minimum_s=0.2)
    yield BenchRow(
        name="HMC through Python, 8x8x8x4, 1 thread",
        value=rate(whole, "best of 5"),
        ceiling_name="its kernels alone",
        ceiling=rate(kernels_alone(chain), "sum of best of 5"),
    )
    for dims in ((8, 8, 8, 4), (16, 16, 16, 16)):
        one, two = (chain_of(dims, threads) for threads in (1, 2))
        yield BenchRow(
            name=f"HMC, {'x'.join(map(str, dims))}, 2 threads",
            value=rate(best_of(lambda two=two: two.update(accept_always=True), repeats=3), "best of 3"),
            peer_name="1 thread",
            peer=rate(best_of(lambda one=one: one.update(accept_always=True), repeats=3), "best of 3"),
        )
