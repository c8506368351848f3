"""The workload profiles: the seven of the published design, the four it added later, and workloads from a TOML file.

Needs and preferences are the published design's; operation counts are ours, for the reference size each names, so that
a cost model has something to work with.
"""

import tomllib
from pathlib import Path
from typing import TypedDict

import msgspec

from metalforge.core.capabilities import QuantizedInference, Trait, capability_from_label
from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.substrate import Kind
from metalforge.core.workload import Workload

__all__ = ["WORKLOADS", "load_workload", "workload"]

_Q4 = QuantizedInference(bits=frozenset({4}))
_Q8 = QuantizedInference(bits=frozenset({8}))


class _Size(TypedDict):
    """A reference size with its operation counts, shared by workloads."""

    size: str
    flops: float
    bytes_moved: float


_ESN: _Size = {"size": "one step of 50 inputs, 128 neurons", "flops": 2.0 * 128 * 178, "bytes_moved": 128 * 178 / 2}
"""An echo state network step: 2 (N^2 + N I) flops; int4 weights, two a byte."""
_CG: _Size = {"size": "one staggered CG iteration on 16^4", "flops": 620.0 * 16**4, "bytes_moved": 1.5e3 * 16**4}
"""Even-odd CG: about 620 flop and 1.5 kB a site."""

WORKLOADS = {
    w.name: w
    for w in (
        Workload(
            name="md_force",
            summary="molecular dynamics forces with an energy sum",
            needs=(Trait.F64, Trait.SCALAR_REDUCE),
            size="10^4 particles, 100 neighbours",
            flops=30e6,
            bytes_moved=50e6,
        ),
        Workload(
            name="hfb_eigensolve",
            summary="dense eigenproblem of a nuclear mean field",
            needs=(Trait.F64, Trait.EIGENSOLVE),
            size="500 x 500 symmetric",
            flops=9.0 * 500**3,
            bytes_moved=3 * 8.0 * 500**2,
        ),
        Workload(
            name="lattice_cg",
            summary="conjugate gradient on a lattice Dirac operator",
            needs=(Trait.F64, Trait.CONJUGATE_GRADIENT),
            **_CG,
        ),
        Workload(
            name="esn_npu_inference",
            summary="echo state network in 8-bit integers",
            needs=(_Q8,),
            prefer=Kind.NPU,
            precision="int8",
            **_ESN,
        ),
        Workload(
            name="esn_gpu_inference",
            summary="echo state network in single precision kernels",
            needs=(Trait.F32, Trait.KERNEL_DISPATCH),
            prefer=Kind.GPU,
            precision="f32",
            size=_ESN["size"],
            flops=2.0 * 128 * 178,
            bytes_moved=4.0 * 128 * 178,
        ),
        Workload(
            name="cpu_validation",
            summary="double precision cross-check on the host",
            needs=(Trait.F64,),
            prefer=Kind.CPU,
            size="plaquette of 16^4",
            flops=2.6e3 * 16**4,
            bytes_moved=576.0 * 16**4,
        ),
        Workload(
            name="spectral_spmv",
            summary="sparse matrix-vector products of a spectral method",
            needs=(Trait.F64, Trait.SPARSE_MATVEC),
            size="10^6 rows, 7 entries per row",
            flops=14e6,
            bytes_moved=100e6,
        ),
        Workload(
            name="lattice_cg_df64",
            summary="conjugate gradient with pairs of floats for the bulk",
            needs=(Trait.F64, Trait.DF64, Trait.CONJUGATE_GRADIENT),
            precision="df64",
            **_CG,
        ),
        Workload(
            name="hetero_npu_phase_classifier",
            summary="phase classifier in 4-bit integers",
            needs=(_Q4,),
            prefer=Kind.NPU,
            precision="int4",
            **_ESN,
        ),
        Workload(
            name="streaming_compute",
            summary="double precision stage of a pipeline behind PCIe",
            needs=(Trait.F64, Trait.STREAMING_STAGE, Trait.PCIE_TRANSFER),
            size="one leapfrog step on 16^4",
            flops=14e3 * 16**4,
            bytes_moved=2.5e3 * 16**4,
        ),
        Workload(
            name="validation_oracle",
            summary="double precision second opinion behind PCIe",
            needs=(Trait.F64, Trait.PCIE_TRANSFER),
            size="plaquette of 16^4",
            flops=2.6e3 * 16**4,
            bytes_moved=576.0 * 16**4,
        ),
    )
}


def workload(name: str) -> Workload:
    """Return a workload profile by name."""
    if name not in WORKLOADS:
        raise UnknownNameError("workload", name, WORKLOADS)
    return WORKLOADS[name]


class _WorkloadFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A workload as it stands in TOML: capabilities by label."""

    name: str
    needs: list[str]
    flops: float
    bytes_moved: float
    summary: str = ""
    size: str = ""
    prefer: Kind | None = None
    precision: str = "f64"


def load_workload(path: Path) -> Workload:
    """Read a workload from a TOML file; unknown keys, labels and types are refused by name."""
    try:
        raw = tomllib.loads(path.read_text())
    except OSError as error:
        raise SpecError(f"cannot read workload file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} is not valid TOML: {error}") from error
    known = _WorkloadFile.__struct_fields__
    for key in raw:
        if key not in known:
            raise UnknownNameError(f"key in {path}", key, known)
    try:
        fields = msgspec.convert(raw, _WorkloadFile)
        needs = tuple(capability_from_label(label) for label in fields.needs)
        return Workload(
            name=fields.name,
            summary=fields.summary,
            needs=needs,
            prefer=fields.prefer,
            size=fields.size,
            flops=fields.flops,
            bytes_moved=fields.bytes_moved,
            precision=fields.precision,
        )
    except (msgspec.ValidationError, ValueError) as error:
        raise SpecError(f"{path}: {error}") from error
