"""What happens when a device stops answering in the middle of a run: once more, then without it."""

import warnings
from collections.abc import Callable
from typing import Literal, TypeAlias, TypeVar

from metalforge.core.errors import require_one_of
from metalforge.substrates.npu.device import DeviceGoneError, DeviceTimeoutError

OnFailure: TypeAlias = Literal["fallback", "raise"]
T = TypeVar("T")


class DeviceFallbackWarning(UserWarning):
    """A device stopped answering; software goes on from the same state."""


class DeviceGuard:
    """Runs calls on a device; after a failure, as the policy says, runs them in software for good.

    A time-out is tried once more, and so is a device that is gone where `reconnect` can bring it back. A second failure
    ends its use: `fallback` warns once and counts every call that software took over, `raise` lets the error through
    before anything has changed.
    """

    def __init__(self, policy: OnFailure, reconnect: Callable[[], object] | None = None) -> None:
        require_one_of("fallback", "raise", on_device_failure=policy)
        self.policy, self._reconnect = policy, reconnect
        self.lost = False
        self.retries = self.fallbacks = 0

    def call(self, on_device: Callable[[], T], in_software: Callable[[], T]) -> T:
        """Return what the device gives, or software in its place."""
        if not self.lost:
            try:
                return self._twice(on_device)
            except (DeviceTimeoutError, DeviceGoneError) as error:
                if self.policy == "raise":
                    raise
                self.lost = True
                warnings.warn(
                    f"the NPU stopped answering ({str(error).splitlines()[0]}); software goes on from the same state",
                    DeviceFallbackWarning,
                    stacklevel=3,
                )
        self.fallbacks += 1
        return in_software()

    def _twice(self, on_device: Callable[[], T]) -> T:
        try:
            return on_device()
        except DeviceTimeoutError:
            self.retries += 1
        except DeviceGoneError:
            if self._reconnect is None:
                raise
            self._reconnect()
        return on_device()
