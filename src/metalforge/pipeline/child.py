"""The process of one stage: started by `processes`, with a socket as its only argument. Not for use by hand."""

import os
import runpy
import select
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress

from .hosts import StageServer
from .wire import receive_object, send_object

LOOK_S = 0.1
"""Between two looks at whether the parent is there, once its end of the socket is closed."""


def serve(connection: socket.socket) -> None:
    """Answer requests (verb, arguments) until the parent closes."""
    path, main_file = receive_object(connection)
    sys.path[:] = path
    if main_file is not None:
        # The stage was written in the parent's script: run it under another name, as multiprocessing does.
        module = type(sys)("__mp_main__")
        module.__dict__.update(runpy.run_path(main_file, run_name="__mp_main__"))
        sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    server = StageServer()
    while True:
        try:
            verb, arguments = receive_object(connection)
        except EOFError:
            break
        except Exception as error:
            send_object(connection, ("error", portable(error), traceback.format_exc()))
            continue
        try:
            send_object(connection, ("ok", server.do(verb, arguments), None))
        except Exception as error:
            send_object(connection, ("error", portable(error), traceback.format_exc()))
    server.close()


def portable(error: Exception) -> Exception:
    """Return the error if it can be pickled, else a RuntimeError with its message."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def end_with_parent(connection: socket.socket, parent: int) -> None:
    """End this process at once, whatever its stage is doing, when the parent has died."""
    closed = select.poll()
    closed.register(connection, 0)  # which reports that the other end was closed, and nothing else
    closed.poll()
    while os.getppid() == parent:  # it closes its end also to let us finish
        time.sleep(LOOK_S)
    os._exit(1)


def main() -> None:
    """Serve the socket whose descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it drains or stops us
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        threading.Thread(target=end_with_parent, args=(connection, os.getppid()), daemon=True).start()
        with suppress(ConnectionError):  # the parent is gone, and with it whatever waited for an answer
            serve(connection)


if __name__ == "__main__":
    main()
