"""The process of one stage: started by `processes`, with a socket as its only argument. Not for use by hand."""

import os
import runpy
import signal
import socket
import sys
import time
import traceback
from typing import Any

from .graph import StageSpec
from .hosts import LocalHost, StepContext
from .items import Item
from .wire import receive_object, send_object

__all__ = ["main", "perform", "serve"]


def serve(connection: socket.socket) -> None:
    """Answer requests (verb, argument) until the parent closes."""
    path, main_file = receive_object(connection)
    sys.path[:] = path
    if main_file is not None:
        # The stage was written in the parent's script: run it under another name, as multiprocessing does.
        module = type(sys)("__mp_main__")
        module.__dict__.update(runpy.run_path(main_file, run_name="__mp_main__"))
        sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    host: LocalHost | None = None
    while True:
        try:
            verb, argument = receive_object(connection)
        except EOFError:
            break
        except Exception as error:
            send_object(connection, ("error", _portable(error), traceback.format_exc()))
            continue
        try:
            if verb == "open":
                stage, name, config, substrate, saved = argument
                spec = StageSpec(name=name, stage=stage, config=config, substrate=substrate)
                host = LocalHost(spec, StepContext(name, substrate), time.perf_counter_ns)
                host.open(saved)
                result: Any = os.getpid()
            else:
                assert host is not None
                result = perform(host, verb, argument)
            send_object(connection, ("ok", result, None))
        except Exception as error:
            send_object(connection, ("error", _portable(error), traceback.format_exc()))
    if host is not None:
        host.close()


def perform(host: LocalHost, verb: str, argument: Any) -> Any:
    """Do one verb with its argument, as it came over a wire."""
    if verb == "step":
        identity, payload, parents, header = argument
        return host.step(Item(identity, payload, parents, header))
    if verb in {"produce", "finish", "checkpoint"}:
        return getattr(host, verb)()
    return getattr(host, verb)(argument)


def _portable(error: Exception) -> Exception:
    """Return the error if it survives the journey, else a plain one with its words."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def main() -> None:
    """Serve the socket whose descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it drains or stops us
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        serve(connection)


if __name__ == "__main__":
    main()
