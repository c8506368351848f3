"""Device profiles of the AKD1000: where its modelled costs come from.

Nothing here was measured by this project, and no physical AKD1000 was at hand. `akd1000-published` holds third-party
measurements; `akd1000-claimed` holds the figures of the seed documents, which rest on timing an empty device
(54 us is a write and a read with no model loaded) and on vendor power. Reports name the profile they used, and
claims are reproduced under `akd1000-claimed` only.
"""

import msgspec

from metalforge.core.errors import UnknownNameError

__all__ = ["PROFILES", "DeviceProfile", "profile"]


class DeviceProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Costs and limits of an NPU, each with the sentence that says where it was found."""

    name: str
    source: str
    call_s: float
    """One inference call, single input."""
    weight_update_s: float
    """Replacing the weights of a loaded program."""
    power_w: float
    """What the call's energy is charged at."""
    max_batch: int
    neural_processors: int
    """All of them, whatever they can hold."""
    layer_processors: int
    """Those that can hold a fully connected layer."""
    sram_bytes: int


PROFILES = {
    p.name: p
    for p in (
        DeviceProfile(
            name="akd1000-published",
            source=(
                "rustChip benchmark datasheet and silicon spec (SDK 2.19.1, InputConv to FC, single input): 650 us a "
                "call over PCIe, 14 ms set_variable, 0.918 W board during inference; 78 neural processors, 18 FNP3 + "
                "4 FNP2 hold fully connected layers"
            ),
            call_s=650e-6,
            weight_update_s=14e-3,
            power_w=0.918,
            max_batch=64,
            neural_processors=78,
            layer_processors=22,
            sram_bytes=8 * 2**20,
        ),
        DeviceProfile(
            name="akd1000-claimed",
            source=(
                "seed documents: 54 us and 1.4 uJ an inference (30 mW x 54 us, rounded down), 86 us a weight "
                "update, 1000 NPs; no measurement of a loaded model stands behind them"
            ),
            call_s=54e-6,
            weight_update_s=86e-6,
            power_w=1.4e-6 / 54e-6,
            max_batch=8,
            neural_processors=1000,
            layer_processors=1000,
            sram_bytes=8 * 2**20,
        ),
    )
}


def profile(name: str) -> DeviceProfile:
    """Return a device profile by name."""
    if name not in PROFILES:
        raise UnknownNameError("device profile", name, PROFILES)
    return PROFILES[name]
