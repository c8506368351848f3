import msgspec
import pytest

from metalforge.core import Measured, Modelled, Quantity

MEASURED = Measured(value=2.0, unit="J", how="NVML")
MODELLED = Modelled(value=3.0, unit="J", profile="akd1000-published")


def test_equal_kinds_and_units_add_and_keep_their_source():
    total = MEASURED + Measured(value=1.0, unit="J", how="RAPL")
    assert total == Measured(value=3.0, unit="J", how="NVML; RAPL")
    assert (MODELLED - MODELLED).value == 0
    assert 2 * MODELLED == MODELLED + MODELLED
    assert MODELLED.ratio(MODELLED) == 1.0


@pytest.mark.parametrize(
    "mix",
    [
        lambda: MEASURED + MODELLED,
        lambda: MODELLED + MEASURED,
        lambda: MODELLED - MEASURED,
        lambda: MEASURED < MODELLED,
        lambda: MODELLED <= MEASURED,
        lambda: MEASURED.ratio(MODELLED),
        lambda: sum([MODELLED], MEASURED),
    ],
)
def test_measured_and_modelled_never_mix(mix):
    with pytest.raises(TypeError, match=r"measured.*modelled.*(NVML|akd1000)"):
        mix()


def test_units_and_bare_numbers_do_not_mix():
    with pytest.raises(TypeError, match="different units"):
        MEASURED + Measured(value=1.0, unit="s", how="clock")
    with pytest.raises(TypeError, match="Measured"):
        MEASURED + 1.0
    with pytest.raises(TypeError, match="plain number"):
        MEASURED * MEASURED


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(650e-6, "s", "650 us"), (1.4e-6, "J", "1.4 uJ"), (0.0, "J", "0 J"), (2.5e9, "B/s", "2.5 GB/s")],
)
def test_shown_with_prefix_and_source(value, unit, text):
    assert str(Modelled(value=value, unit=unit, profile="p")) == f"{text} (modelled: p)"


def test_json_round_trip_keeps_the_kind():
    for quantity in (MEASURED, MODELLED):
        encoded = msgspec.json.encode(quantity)
        assert msgspec.json.decode(encoded, type=Quantity) == quantity
    assert b'"source":"measured"' in msgspec.json.encode(MEASURED)
