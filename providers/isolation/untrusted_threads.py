"""Threads for short computations on tenants' data: templates, texts, tables.

asyncio's default executor is for I/O: rows, files, host names. Computations would delay that I/O, so they have a few
threads of their own. Work that may take long or cannot be interrupted belongs in a child process
(`limited_process.py`).
"""

import asyncio
import contextvars
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREAD_COUNT = max(4, 2 * (os.cpu_count() or 1))  # more than CPUs, since a thread may wait for a lock

_threads = ThreadPoolExecutor(THREAD_COUNT, thread_name_prefix="easel-computing")


async def in_untrusted_thread(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Call a function in one of these threads and return its result. The function must not do I/O."""
    context = contextvars.copy_context()
    call = partial(context.run, function, *arguments, **named)
    return await asyncio.get_running_loop().run_in_executor(_threads, call)
