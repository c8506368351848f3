"""Search, then compile: a task and bounds go in, a network within an accuracy and latency budget comes out.

`study` searches (phase 1), `choosing` decides on the chip's own arithmetic and compiles (phase 2), and learns on the
device (phase 3); `run.search_network` does all three. Optuna's home is `study`, matplotlib's is `plot`.
"""

from .candidates import Parameters, Space, build
from .choosing import Finalist, SearchBudget, choose, front
from .run import SearchReport, search_network
from .study import StudyResult, run_study
from .tasks import TASKS, SearchTask, data_task, search_task

__all__ = [
    "TASKS",
    "Finalist",
    "Parameters",
    "SearchBudget",
    "SearchReport",
    "SearchTask",
    "Space",
    "StudyResult",
    "build",
    "choose",
    "data_task",
    "front",
    "run_study",
    "search_network",
    "search_task",
]
