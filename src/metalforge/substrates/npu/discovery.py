"""Finding NPUs: by PCI vendor id, by device node, and by asking the vendor's SDK for its list when it is installed."""

from importlib.util import find_spec
from math import inf
from pathlib import Path

from metalforge.core import (
    BatchInference,
    Cost,
    Discovery,
    EnergyMeter,
    Kind,
    Missing,
    NoEngine,
    Property,
    QuantizedInference,
    SubstrateInfo,
    Trait,
    Workload,
)
from metalforge.substrates.meters import ModelledMeter
from metalforge.substrates.profiles import profile

PCI_VENDOR = "0x1e7c"
"""BrainChip's PCI vendor id."""
PCI_MODELS = {"0xbca1": "BrainChip AKD1000", "0xa500": "BrainChip AKD1500"}


class Npu(NoEngine):
    """A board, or the AKD1000 without one: its arithmetic on the CPU. Costs come from a device profile."""

    def __init__(
        self,
        name: str,
        model: str,
        properties: dict[str, Property] | None = None,
        *,
        device: str = "akd1000-published",
        emulated: bool = False,
    ) -> None:
        self._profile = chip = profile(device)
        self.info = SubstrateInfo(
            kind=Kind.NPU,
            name=name,
            model=model,
            # Weights of 1, 2 and 4 bits; 8-bit inputs of the first layer. No floating point at all.
            capabilities=(
                QuantizedInference(bits=frozenset({1, 2, 4, 8})),
                BatchInference(max_batch=chip.call.max_batch.value),
                Trait.WEIGHT_MUTATION,
                Trait.STREAMING_STAGE,
                *(() if emulated else (Trait.PCIE_TRANSFER,)),
            ),
            properties={"emulated": emulated}
            | (properties or {})
            | {
                "neural_processors": chip.mesh.neural_processors.value,
                "layer_processors": chip.mesh.layer_processors,
                "memory_bytes": chip.mesh.sram_bytes.value,
                "cost_profile": chip.name,
            },
        )

    def cost(self, workload: Workload) -> Cost:
        """Price a call from the device profile: below a width of 256 its size does not matter."""
        from metalforge.substrates.prices import Roofline

        call = self._profile.call
        return Roofline(
            profile=self._profile.name,
            flops_per_s=inf,
            bytes_per_s=inf,
            call_s=call.call_s.value,
            power_w=call.power_w.value,
        ).cost(workload)

    def meter(self) -> EnergyMeter:
        """Joules of the profile's power; neither the chip nor its SDK has a counter we may publish from."""
        return ModelledMeter(profile=self._profile.name, power_w=self._profile.call.power_w.value)


def emulated_npu(device: str = "akd1000-published") -> Npu:
    """Return the emulated chip, with the costs of a profile."""
    return Npu("akd1000-emulated", "AKD1000, emulated", device=device, emulated=True)


def discover(sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> Discovery:
    """Return physical boards, if any, and the emulated one."""
    boards = _boards(sys, dev)
    missing = []
    sdk = find_spec("akida") is not None
    if sdk and not boards:
        listed, failure = _sdk_devices()
        boards = [Npu(f"akida{i}", text, {"found_by": "SDK"}) for i, text in enumerate(listed)]
        if failure:
            missing.append(Missing(what="Akida SDK", reason=failure))
    if not boards:
        missing.append(
            Missing(
                what="physical NPU",
                reason=f"no PCI device of vendor {PCI_VENDOR}, no /dev/akida*, "
                + ("and the SDK lists none" if sdk else "and the SDK is not installed to ask"),
                remedy="the emulated AKD1000 stands in",
            )
        )
    elif not sdk:
        missing.append(
            Missing(
                what="Akida SDK",
                reason="a board is here, but programs reach it through the vendor's SDK",
                remedy="pip install 'metalforge[npu]'",
            )
        )
    return Discovery(substrates=(*boards, emulated_npu()), missing=tuple(missing))


def _boards(sys: Path, dev: Path) -> list[Npu]:
    nodes = [str(node) for node in sorted(dev.glob("akida*"))]
    found: list[Npu] = []
    for device in sorted(sys.glob("bus/pci/devices/*")):
        try:
            if (device / "vendor").read_text().strip() != PCI_VENDOR:
                continue
            model = PCI_MODELS.get((device / "device").read_text().strip(), "BrainChip NPU")
        except OSError:
            continue
        node = nodes[len(found)] if len(found) < len(nodes) else ""
        found.append(Npu(f"akida{len(found)}", model, {"pci": device.name, "device_node": node}))
    if not found:  # a board behind a driver in a container: the node is there, the PCI tree is not
        found = [Npu(Path(n).name, "BrainChip NPU", {"device_node": n}) for n in nodes]
    return found


def _sdk_devices() -> tuple[list[str], str]:
    """Ask the SDK for its list (documented; maps no model, starts nothing)."""
    try:
        from .akida_ import device_names  # here: what needs arrays is loaded where there is a device to ask for

        return device_names(), ""
    except Exception as error:  # a broken SDK is a finding, not a failure of ours
        return [], f"asking for its devices failed: {type(error).__name__}: {error}"
