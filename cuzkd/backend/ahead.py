"""Work that several threads do ahead of whoever takes its results, in order and in bounded memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

THREADS = 16  # beyond these the memory sets the pace

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def ahead(work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int = 0) -> Iterator[_Result]:
    """work(item) for each of them, in their order; at most one result for each thread is there that was not taken.

    threads: one per processor, up to THREADS, by default. Raises what `work` raises, in its turn; when the caller
    stops, what has begun is waited for.
    """
    threads = threads or min(THREADS, len(os.sched_getaffinity(0)))
    begun: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="ahead") as pool:
        try:
            for item in items:
                begun.append(pool.submit(work, item))
                if len(begun) >= threads:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()
