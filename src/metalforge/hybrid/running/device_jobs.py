"""The jobs of a plan on a device: loaded, run, given new weights; what went over and how long it took is counted."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.hybrid.routing.jobs import ChainJob, Job, LinearJob
from metalforge.substrates.npu.device import NpuDevice, NpuError, Outputs
from metalforge.substrates.npu.program import Program

from .device_linear import DeviceLinear, DevicePrograms, SlottedDevice

__all__ = ["DeviceJobs", "MeteredPrograms", "job_matrix"]


class MeteredPrograms(DevicePrograms):
    """Programs on a device, with the wall time of its calls and the bytes that they carried."""

    def __init__(self, device: NpuDevice) -> None:
        super().__init__(device)
        self.seconds = 0.0
        """Wall time inside the device's methods. For an emulator that is the time of emulating, and no more."""
        self.bytes_in = self.bytes_out = 0

    def load(self, name: str, program: Program) -> None:
        """Take a program in."""
        start = perf_counter()
        try:
            super().load(name, program)
        finally:
            self.seconds += perf_counter() - start

    def infer(self, name: str, rows: NDArray[np.uint8]) -> Outputs:
        """Return what a program gives."""
        start = perf_counter()
        try:
            values = super().infer(name, rows)
        finally:
            self.seconds += perf_counter() - start
        self.bytes_in += rows.nbytes
        self.bytes_out += values.nbytes
        return values

    def update(self, name: str, program: Program) -> int:
        """Replace the weights of a program."""
        start = perf_counter()
        try:
            return super().update(name, program)
        finally:
            self.seconds += perf_counter() - start


class DeviceJobs:
    """All jobs of one plan on one device. `run` and `push` take and give real numbers."""

    def __init__(self, jobs: Sequence[Job], device: NpuDevice, name: str) -> None:
        self.programs = MeteredPrograms(device)
        self.clipped = 0
        """Numbers that were beyond the range they were planned for, and so were clamped."""
        self._prefix = _free_prefix(device, name)
        self._linear: dict[str, list[DeviceLinear]] = {}
        self._limits = {job.name: job.ranges for job in jobs}
        try:
            for job in jobs:
                self._load(job)
        except NpuError:
            self.close()
            raise

    def run(self, job: Job, x: NDArray[Any]) -> NDArray[np.float64]:
        """Return y (rows, outputs) of a job for x (rows, inputs)."""
        self.clipped += int(np.count_nonzero(np.abs(x) > self._limits[job.name]))
        if isinstance(job, ChainJob):
            return job.chain.decode(self.programs.infer(self._slot(job), job.chain.encode(x)))
        parts = [linear(x) for linear in self._linear[job.name]]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def push(self, job: LinearJob, matrix: NDArray[Any]) -> int:
        """Give a job new weights (outputs, inputs); return the bytes that went over."""
        blocks = zip(self._linear[job.name], job.rows, strict=True)
        return sum(linear.push(matrix[rows]) for linear, rows in blocks)

    def reload(self) -> None:
        """Put every program on the device again."""
        self.programs.reload()

    def close(self) -> None:
        """Take the programs off the device; one that is gone has none."""
        with suppress(NpuError):
            self.programs.close()

    def _load(self, job: Job) -> None:
        if isinstance(job, ChainJob):
            self.programs.load(self._slot(job), job.chain.program)
        else:
            self._linear[job.name] = [DeviceLinear(block, self.programs, self._prefix) for block in job.blocks]

    def _slot(self, job: Job) -> str:
        return f"{self._prefix}/{job.name}"


def job_matrix(job: LinearJob, weights: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the matrix of a job from the weights of its nodes."""
    return np.concatenate([weights[name] for name in job.spans])


def _free_prefix(device: NpuDevice, name: str) -> str:
    """Return a name under which no other user of the device has programs."""
    any_device: object = device
    taken = any_device.slots() if isinstance(any_device, SlottedDevice) else ()
    prefix, count = name, 1
    while any(slot.startswith(f"{prefix}/") for slot in taken):
        count += 1
        prefix = f"{name}#{count}"
    return prefix
