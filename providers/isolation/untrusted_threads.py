"""Threads for computing on what tenants have sent: templates, texts, tables.

asyncio's default executor is for what waits: rows, files, host names. Computing there would keep all of that waiting,
so it has a few threads of its own. What may compute for longer than a moment, or cannot be interrupted, belongs into a
child process (`limited_process.py`).
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

THREADS = max(4, 2 * (os.cpu_count() or 1))  # more than processors: one that waits for a lock leaves room for another

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="easel-computing")


async def in_untrusted_thread(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Compute in a thread that no query, file or host name waits for. The function must not wait for anything."""
    context = contextvars.copy_context()
    call = partial(context.run, function, *arguments, **named)
    return await asyncio.get_running_loop().run_in_executor(_threads, call)
