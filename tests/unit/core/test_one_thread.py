"""One core for linear algebra: set by the first block, taken back by the last, whatever order they end in."""

from contextlib import ExitStack
from threading import Thread

import numpy as np
import scipy.linalg  # noqa: F401  # has a library of its own, which must be there before it is limited
from threadpoolctl import threadpool_info, threadpool_limits

from metalforge.core.threads import one_thread


def threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_blocks_overlap_and_the_last_takes_the_limit_back():
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2, user_api="blas"):
        with one_thread():
            assert threads() == {1}
        assert threads() == {2}
        first, second = ExitStack(), ExitStack()
        first.enter_context(one_thread())
        second.enter_context(one_thread())
        first.close()
        assert threads() == {1}
        second.close()
        assert threads() == {2}


def test_a_block_of_any_thread_sets_the_limit_whoever_set_one_before():
    np.ones((2, 2)) @ np.ones((2, 2))
    seen = []

    def work():
        with one_thread():
            seen.append(threads())

    with threadpool_limits(2, user_api="blas"), one_thread():
        assert threads() == {1}
    with threadpool_limits(2, user_api="blas"):  # this thread has the say, and lives on
        for _ in range(2):
            worker = Thread(target=work)
            worker.start()
            worker.join()
        assert threads() == {2}
    assert seen == [{1}, {1}]
