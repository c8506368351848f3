"""A digest that a block has from where the gate judged it: what was spoiled on its way to the journal is not taken.

    seal = BLAKE2b(visit, chain, rows, decisions of the chain, digest of the configuration at the end, ...)

The gate stands in the producer, before anything of a block leaves it. Behind it numbers travel: through the memory of
a node, over the network, into the process that writes the journal. Whoever takes an answer there asks `doubt` of it.
Wrong numbers that a producer has computed and sealed are the gate's, and snapshots of configurations are held against
their own row by the stage that evaluates them again.
"""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from math import isfinite
from typing import Any

import msgspec

from metalforge.pipeline import Emit

from .orders import Block, Volley

_DIGEST_BYTES = 16
_ENCODER = msgspec.msgpack.Encoder()


def sealed(block: Block) -> Block:
    """Return a block with its seal."""
    return replace(block, seal=seal_of(block))


def seal_of(block: Block) -> bytes:
    """Return the digest of what the journal gets of a block: doubles by their bits, so that no change is too small.

    What belongs to no chain (a lane's words, times, what is counted over a volley) is not in it.
    """
    of_chain = [decision for decision in block.decisions if decision.chain]
    where = block.visit, block.chain, block.substrate, block.rung, block.coordinate
    state = block.step, block.measured, block.done, block.missing, block.released, block.saved
    said = block.digest, block.chi, block.fault, block.promised
    content = _ENCODER.encode((where, state, said, block.segments, of_chain))
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()


def doubt(asked: Volley, answer: Any) -> str:
    """Return why an answer to orders cannot be what a producer has made of them; nothing where it can."""
    if not isinstance(answer, Sequence) or not all(
        isinstance(made, Emit) and isinstance(made.payload, Block) for made in answer
    ):
        return "it is not made of blocks"
    blocks: list[Block] = [made.payload for made in answer]
    answered = sorted((block.visit, block.chain, block.substrate) for block in blocks if not block.rung)
    if answered != sorted((order.visit, order.chain, order.substrate) for order in asked.orders):
        return "it answers other orders than it was given"
    if [block.more for block in blocks] != list(range(len(blocks)))[::-1]:
        return "its blocks are not in their order"
    return next((found for block in blocks if (found := _wrong(block))), "")


def _wrong(block: Block) -> str:
    """Return what is wrong with a block."""
    try:
        if block.seal != seal_of(block):
            return f"{block.chain}: what came is not what passed the gate"
        for segment in block.segments:
            for name, values in segment.columns.items():  # nothing else can be written
                if not all(map(isfinite, values)):
                    return f"{block.chain}: `{name}` is not finite"
    except (msgspec.MsgspecError, AttributeError, TypeError, ValueError, OverflowError) as error:
        return f"{block.chain}: it cannot be read ({error})"
    return ""
