"""Power budgets: how long a stage must rest so that the mean power of its substrate comes down to the budget."""

from collections import deque
from collections.abc import Callable

from metalforge.core.energy import EnergyMeter
from metalforge.core.errors import MeterUnavailableError

__all__ = ["Throttle"]

_WINDOW_S = 1.0  # counters of a millijoule need that long for three digits at 1 W
_LONGEST_S = 1.0  # a stage rests at most so long at a time: others may heat the device, and it must not starve


class Throttle:
    """Reads a meter after each step; the mean power is (J_now - J_then) / (t_now - t_then) over a rolling second."""

    def __init__(self, meter: EnergyMeter, budget_w: float, clock_ns: Callable[[], int]) -> None:
        self._meter, self._budget_w, self._clock_ns = meter, budget_w, clock_ns
        self._points: deque[tuple[int, float]] = deque([(clock_ns(), meter.total().value)])

    def rest_s(self) -> float:
        """Return the seconds to rest now: 0 within the budget.

        Resting r seconds with nothing else on the device makes the mean E / (t + r); the budget P wants r = E / P - t.
        """
        try:
            joules = self._meter.total().value
        except MeterUnavailableError:
            return 0.0  # it was readable when the run began; a stage is not stopped for a meter
        now = self._clock_ns()
        points = self._points
        points.append((now, joules))
        while len(points) > 2 and now - points[1][0] >= _WINDOW_S * 1e9:
            points.popleft()
        then, joules_then = points[0]
        seconds = (now - then) * 1e-9
        return min(max(0.0, (joules - joules_then) / self._budget_w - seconds), _LONGEST_S)
