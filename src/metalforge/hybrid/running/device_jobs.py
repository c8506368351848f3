"""The jobs of a plan on a device: loaded, run, given new weights."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.hybrid.routing.jobs import ChainJob, Job, LinearJob
from metalforge.substrates.npu.device import NpuDevice, NpuError
from metalforge.substrates.npu.residency import DevicePrograms

from .device_matrix import DeviceMatrix

__all__ = ["DeviceJobs", "job_matrix"]


class DeviceJobs:
    """All jobs of one plan on one device. `run` and `push` take and give real numbers."""

    def __init__(self, jobs: Sequence[Job], device: NpuDevice, name: str) -> None:
        self.programs = DevicePrograms(device)
        self.clipped = 0
        """Numbers that were beyond the range they were planned for, and so were clamped."""
        self.matrices: dict[str, list[DeviceMatrix]] = {}
        """The blocks of each linear job, one below the other."""
        self._chains: dict[str, str] = {}
        self._limits = {job.name: job.ranges for job in jobs}
        try:
            for job in jobs:
                if isinstance(job, ChainJob):
                    self._chains[job.name] = self.programs.add(f"{name}/{job.name}", job.program)
                else:
                    self.matrices[job.name] = [DeviceMatrix(block, self.programs, name) for block in job.blocks]
        except NpuError:
            self.close()
            raise

    def run(self, job: Job, x: NDArray[Any]) -> NDArray[np.float64]:
        """Return y (rows, outputs) of a job for x (rows, inputs)."""
        self.clipped += int(np.count_nonzero(np.abs(x) > self._limits[job.name]))
        if isinstance(job, ChainJob):
            return job.decode(self.programs.infer(self._chains[job.name], job.encode(x)))
        parts = [matrix(x) for matrix in self.matrices[job.name]]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def push(self, job: LinearJob, matrix: NDArray[Any]) -> int:
        """Give a job new weights (outputs, inputs); return the bytes that went over."""
        blocks = zip(self.matrices[job.name], job.rows, strict=True)
        return sum(block.push(matrix[rows]).bytes for block, rows in blocks)

    def reload(self) -> None:
        """Put every program on the device again."""
        self.programs.reload()

    def close(self) -> None:
        """Take the programs off the device; one that is gone has none."""
        with suppress(NpuError):
            self.programs.close()


def job_matrix(job: LinearJob, weights: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the matrix of a job from the weights of its nodes."""
    return np.concatenate([weights[name] for name in job.spans])
