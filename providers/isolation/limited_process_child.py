"""The program of a limited child process: it sets its limits, then executes one request after the other.

Its arguments are the module search path and the options of `limited_process_frames.child_options`.
"""

import contextlib
import ctypes
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from canvas.errors import NodeFailure
from providers.isolation import limited_process_frames as wire

MAX_OPEN_FILES = 64
MAX_FILE_BYTES = 1024 * 1024 * 1024  # bytes; libraries that write workbooks use temporary files
MAX_MESSAGE = 500  # characters of an error that is not a NodeFailure
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38


def main() -> None:
    """Serve requests until the parent is gone or no request has come for the idle time."""
    options = json.loads(sys.argv[2])
    if not _bind_to_parent(options["parent"]):
        return
    _set_limits(options["memory"])
    connection = socket.socket(fileno=options["descriptor"])
    while select.select([connection], [], [], options["idle"])[0]:
        request = wire.read_request(connection)
        if request is None:
            return
        status, value = _execute(request)
        try:
            frame = wire.reply_frame(status, value)
        except MemoryError:
            status, frame = wire.MEMORY, wire.reply_frame(wire.MEMORY, None)
        except (TypeError, ValueError, RecursionError) as error:
            frame = wire.reply_frame(wire.FAILURE, _failure_json(error))
        del request, value
        for part in frame:
            connection.sendall(part)
        if status == wire.MEMORY:
            return


def _execute(request: Mapping[str, Any]) -> tuple[str, Any]:
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + 1 + request["cpu_seconds"], hard))
    try:
        return wire.VALUE, _import_function(request["function"])(*request["arguments"], **request["named"])
    except MemoryError:
        return wire.MEMORY, None
    except Exception as error:  # noqa: BLE001 (every error is reported to the parent)
        return wire.FAILURE, _failure_json(error)


def _import_function(name: str) -> Callable[..., Any]:
    """Return the function that the parent names; a tenant's data never becomes such a name."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _failure_json(error: Exception) -> Mapping[str, Any]:
    if isinstance(error, NodeFailure):
        details = {name: value for name, value in error.details.items() if _is_json(value)}
        kind = type(error).__name__
        return {"kind": kind, "message": error.message, "retryable": error.retryable, "details": details}
    message = f"{type(error).__name__}: {str(error)[:MAX_MESSAGE]}"
    return {"kind": "NodeFailure", "message": message, "retryable": False, "details": {}}


def _is_json(value: Any) -> bool:
    try:
        wire.encode(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _bind_to_parent(parent: int) -> bool:
    """Have the kernel kill this process when its parent ends; return False if the parent has ended already."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return os.getppid() == parent


def _set_limits(memory: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # when memory is short, the kernel kills this process, not its parent
            Path("/proc/self/oom_score_adj").write_text("1000")
    limits = {
        resource.RLIMIT_NOFILE: MAX_OPEN_FILES,
        resource.RLIMIT_FSIZE: MAX_FILE_BYTES,
        resource.RLIMIT_CORE: 0,
    }
    if sys.platform == "linux":  # macOS does not enforce this limit
        limits[resource.RLIMIT_AS] = memory
    for kind, value in limits.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, hard))
