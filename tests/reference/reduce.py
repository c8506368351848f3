"""The order of native/reduce.hpp, written out: 32 running sums a block, then binary trees."""

import numpy as np

BLOCK, LANES, VECTORS = 1024, 8, 4


def ordered_sum(terms):
    terms = np.asarray(terms, dtype=np.float64)
    return _tree([_block(terms[i : i + BLOCK]) for i in range(0, len(terms), BLOCK)])


def _block(terms):
    total = np.zeros((VECTORS, LANES))
    step = VECTORS * LANES
    whole = len(terms) // step * step
    for group in terms[:whole].reshape(-1, VECTORS, LANES):
        total += group
    rest = terms[whole:]
    for i in range(0, len(rest), LANES):
        part = rest[i : i + LANES]
        total[0, : len(part)] += part
    lanes = (total[0] + total[2]) + (total[1] + total[3])
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = lanes[:half] + lanes[half:]
    return lanes[0]


def _tree(partial):
    while len(partial) > 1:
        joined = [a + b for a, b in zip(partial[0::2], partial[1::2], strict=False)]
        partial = joined + partial[len(joined) * 2 :]
    return partial[0]
