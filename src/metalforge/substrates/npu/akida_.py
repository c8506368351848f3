"""The same device protocol over BrainChip's Python package `akida`: its simulator, or a board when there is one.

Only calls that the vendor documents are made (`InputData`, `FullyConnected`, `Model.add`, `get_layer`, `set_variable`,
`get_variable`, `forward`, `map`, `devices`, `unprogram`, `mesh.nps`). The package's licence keeps results of testing it
with its user: nothing here takes times, keeps results or writes them anywhere, and statistics are counts. The package
is imported when it is asked for, never before; this is the only module that does so.
"""

import importlib
import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from metalforge.core import Array, Closing, PluginError, SpecError
from metalforge.substrates.profiles import FOLDER as PROFILE_FOLDER
from metalforge.substrates.profiles import load_profile

from .device import (
    DEFAULT_SLOT,
    VARIABLES,
    NpuError,
    Outputs,
    ResourceError,
    Spent,
    Statistics,
    as_rows,
    check_linear,
    image_bytes,
    slot_limit,
    variable,
    with_variable,
)
from .products import check_inputs
from .program import Activation, Program
from .wire import from_bytes


def import_sdk() -> Any:
    """Return the vendor's package; raises `PluginError` with the command that adds it."""
    try:
        return importlib.import_module("akida")
    except ImportError as error:
        raise PluginError(
            f"the vendor's package `akida` cannot be imported ({error})\nhint: pip install 'metalforge[npu]'"
        ) from error


def device_names() -> list[str]:
    """Return what the package calls the boards it sees; maps no model, starts nothing."""
    return [str(getattr(device, "desc", device)) for device in import_sdk().devices()]


def write_sdk_profile(path: Path) -> None:
    """Write a private profile: `akd1000-published` with the mesh that the user's own package describes.

    What the package says stays with its user, so a path inside a source tree of this project is refused.
    """
    folder = path.resolve().parent
    if any((parent / "src" / "metalforge").is_dir() for parent in (folder, *folder.parents)):
        raise SpecError(f"{path} lies in a source tree of metalforge\nhint: choose a folder of your own")
    mesh = import_sdk().AKD1000().mesh
    counts = {
        "neural_processors": len(mesh.nps),
        "onchip_processors": sum("FNP3" in str(np_.types) for np_ in mesh.nps),
        "external_processors": sum("FNP2" in str(np_.types) for np_ in mesh.nps),
    }
    text = (PROFILE_FOLDER / "akd1000-published.toml").read_text()
    text = text.replace('name = "akd1000-published"', f'name = "{path.stem}"', 1)
    for key, count in counts.items():
        replacement = f'{key} = {{ value = {count}, source = "the mesh of the user\'s own akida package" }}'
        text, found = re.subn(rf"^{key} = .*$", replacement, text, count=1, flags=re.MULTILINE)
        if found != 1 or count < 1:
            raise PluginError(f"the package describes {count} {key.replace('_', ' ')}; a profile needs at least one")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    load_profile(path)  # what was written must be a profile


class AkidaDevice(Closing):
    """An `NpuDevice` over the vendor's package.

    `board` is the number of a board in the package's list. None takes the first board, or its simulator when there is
    none; "simulator" takes the simulator in any case. It has one slot, under whatever name it is asked for. A program
    must fit one board whole: nothing falls back to the CPU.
    """

    n_slots = 1

    def __init__(self, board: int | str | None = None) -> None:
        self._sdk = import_sdk()
        self._lock = threading.RLock()
        self._board = self._choose(board)
        self._model: Any = None
        self._program: Program | None = None
        self._slot = DEFAULT_SLOT
        self._counts: Counter[str] = Counter()

    @property
    def where(self) -> str:
        """The board's own description, or ``simulator``."""
        return "simulator" if self._board is None else str(getattr(self._board, "desc", self._board))

    def slots(self) -> tuple[str, ...]:
        """Return the slot that holds the program, if there is one."""
        with self._lock:
            return () if self._program is None else (self._slot,)

    def load(self, program: Program, slot: str = DEFAULT_SLOT) -> None:
        """Build the model of a program and map it to the board, in place of the one in this slot."""
        with self._lock:
            if self._program is not None and slot != self._slot:
                raise slot_limit(self.n_slots, self.slots())
            model = self._asked("build a model", lambda: self._build(program))
            if self._board is not None:
                try:
                    model.map(self._board, hw_only=True)
                except (RuntimeError, ValueError) as error:
                    raise ResourceError(
                        f"`{program.name}` does not fit {self.where}: the vendor's package says: {error}"
                        "\nhint: use fewer units or fewer digits, or split the program"
                    ) from error
            self._model, self._program, self._slot = model, program, slot
            self._counts.update(loads=1, bytes_pushed=image_bytes(program))

    def infer(self, x: NDArray[np.uint8], slot: str = DEFAULT_SLOT) -> Outputs:
        """Return what the last layer gives for one input or a batch."""
        rows, single = as_rows(x)
        with self._lock:
            program = self._loaded(slot)
            check_inputs(program.layers[0], rows)
            shaped = np.ascontiguousarray(rows).reshape(len(rows), 1, 1, program.inputs)
            values = np.asarray(self._asked("run the program", lambda: self._model.forward(shaped)))
            self._counts.update(calls=1, inferences=len(rows))
        last = program.layers[-1]
        flat = values.reshape(len(rows), last.units)
        outputs: Outputs = flat.astype(np.int32) if last.activation is Activation.LINEAR else flat.astype(np.uint8)
        return outputs[0] if single else outputs

    def infer_linear(self, x: NDArray[np.uint8], slot: str = DEFAULT_SLOT) -> NDArray[np.int32]:
        """Return signed potentials; raises `NpuError` where the last layer rectifies."""
        with self._lock:
            check_linear(self._loaded(slot))
            return cast("NDArray[np.int32]", self.infer(x, slot))

    def set_variable(self, name: str, values: Array, slot: str = DEFAULT_SLOT) -> None:
        """Replace a variable of the program in a slot by one of the same type and shape."""
        with self._lock:
            program = with_variable(self._loaded(slot), name, values)  # our rules first, in our words
            layer, _, what = name.rpartition("/")
            self._asked(f"set `{name}`", lambda: self._set(self._model, layer, what, values))
            self._program = program
            self._counts.update(weight_updates=1, bytes_pushed=values.nbytes)

    def get_variable(self, name: str, slot: str = DEFAULT_SLOT) -> Array:
        """Return a copy of a variable, read from the package."""
        with self._lock:
            known = variable(self._loaded(slot), name)  # refuses unknown names
            layer, _, what = name.rpartition("/")
            values = self._asked(f"read `{name}`", lambda: self._model.get_layer(layer).get_variable(what))
            return np.asarray(values).reshape(known.shape).astype(known.dtype)

    def program_external(self, data: bytes) -> None:
        """Put a program that comes as bytes on the device."""
        self.load(from_bytes(data))

    def unload(self, slot: str = DEFAULT_SLOT) -> None:
        """Take the program in a slot off the device; nothing happens when there is none."""
        with self._lock:
            if slot != self._slot:
                return
            if self._model is not None and self._board is not None:
                self._asked("unload the program", lambda: self._board.unprogram())
            self._model = self._program = None

    def reset(self) -> None:
        """Take the program off the device."""
        self.unload(self._slot)

    def statistics(self) -> Statistics:
        """Return counts; the package's times and energies are its user's to ask for."""
        with self._lock:
            return Statistics(**self._counts, busy=None, energy=None)

    def spent(self, slot: str) -> Spent:
        """Return nothing: there is no model of what a board's work takes."""
        return Spent(None, None)

    def close(self) -> None:
        """Take the program off the device."""
        self.unload(self._slot)

    def _choose(self, board: int | str | None) -> Any:
        """Return the board to use, or None for the simulator."""
        if board == "simulator":
            return None
        boards = list(self._sdk.devices())
        if board is None:
            return boards[0] if boards else None
        if not isinstance(board, int) or not 0 <= board < len(boards):
            raise NpuError(
                f"`board` must be a number below {len(boards)}, the boards here, `simulator` or None. Got {board!r}"
            )
        return boards[board]

    def _build(self, program: Program) -> Any:
        first = program.layers[0]
        name = "input"
        while name in [layer.name for layer in program.layers]:
            name += "_"
        model = self._sdk.Model()
        model.add(self._sdk.InputData(input_shape=(1, 1, first.inputs), input_bits=first.input_bits, name=name))
        for layer in program.layers:
            rectifies = layer.activation is Activation.BOUNDED_RELU
            bits = {"act_bits": layer.activation_bits} if rectifies else {}
            model.add(
                self._sdk.FullyConnected(
                    units=layer.units, name=layer.name, weights_bits=layer.weight_bits, activation=rectifies, **bits
                )
            )
            for what in VARIABLES:  # without activation `forward` ignores two of them, but they read back the same
                self._set(model, layer.name, what, getattr(layer, what))
        return model

    def _set(self, model: Any, layer: str, what: str, values: Array) -> None:
        shaped = values.reshape(1, 1, *values.shape) if what == "weights" else values
        model.get_layer(layer).set_variable(what, np.ascontiguousarray(shaped))

    def _asked(self, what: str, call: Any) -> Any:
        """Return what a call into the package gives, its errors in our words with the cause kept."""
        try:
            return call()
        except (RuntimeError, ValueError) as error:
            raise NpuError(f"{self.where} would not {what}: the vendor's package says: {error}") from error

    def _loaded(self, slot: str) -> Program:
        if self._program is None:
            raise NpuError("no program is loaded\nhint: load(program)")
        if slot != self._slot:
            raise NpuError(f"no program in slot `{slot}`; there is `{self._slot}`\nhint: unload it, then load(program)")
        return self._program
