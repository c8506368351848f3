"""Reservoirs larger than the chip: rows of a network split over programs and software, one step for the user."""

from .network import ChunkedEsn, ChunkStatistics
from .plan import Chunk, ChunkPlan, chunk_rows, plan_chunks

__all__ = ["Chunk", "ChunkPlan", "ChunkStatistics", "ChunkedEsn", "chunk_rows", "plan_chunks"]
