"""The process of one stage: started by `processes`, with a socket as its only argument. Not for use by hand."""

import runpy
import signal
import socket
import sys
import traceback

from .hosts import StageServer
from .wire import receive_object, send_object


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
