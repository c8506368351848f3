"""A session of one page: blocks come by stdin, run one after the other here, and what each printed goes to stdout.

Run as a program, in the folder that the page's files are made in.
"""

import contextlib
import io
import json
import subprocess
import sys
import traceback
from pathlib import Path


def run_python(code, names):
    printed, said = io.StringIO(), io.StringIO()
    status = 0
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(code, "<a block of the page>", "exec"), names)
        except Exception:
            status = 1
            traceback.print_exc(file=said)
    return [status, printed.getvalue(), said.getvalue()]


def run_bash(code):
    done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", code], capture_output=True, text=True, check=False)
    return [done.returncode, done.stdout, done.stderr]


def main():
    sys.path.insert(0, "")
    names, outputs = {"__name__": "__main__"}, []
    for language, title, code in json.load(sys.stdin):
        if title:
            Path(title).write_text(code)
            outputs.append([0, "", ""])
        else:
            outputs.append(run_python(code, names) if language == "python" else run_bash(code))
        if outputs[-1][0]:
            break  # whoever reads this says which block it was
    sys.stdout.write(json.dumps(outputs))


if __name__ == "__main__":
    main()
