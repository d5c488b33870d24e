"""The program that the local sandbox starts: it isolates and limits itself, and then runs the code.

It is started by its path in an interpreter of its own, does not import Easel, and reads its job from standard input:

    {"nonce", "result", "files", "parent", "language", "script", "arguments", "node", "harness", "limits",
     "must_isolate", "folder", "root", "shown"}

The result is written to the descriptor `result`, after the nonce, so that printed text is never mistaken for it. If
only this namespace can reach the program's folder, a descriptor of the folder is sent over the socket `files`.

On Linux this process keeps running beside the program and measures the memory that all its processes use together.
"""

import asyncio
import contextlib
import ctypes
import importlib.util
import inspect
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

EXIT_NOT_ISOLATED = 125  # exit code if the code would have to run without isolation
_NEW_USER, _NEW_PIDS, _NEW_NETWORK, _NEW_IPC, _NEW_MOUNTS = 0x10000000, 0x20000000, 0x40000000, 0x08000000, 0x00020000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_PR_SET_CHILD_SUBREAPER = 36
_CAPABILITIES_V3 = 0x20080522
_MEMORY_CHECK_INTERVAL = 0.05  # seconds between two measurements of the memory of all processes
_HEAP_SHARE = 0.75  # share of its memory that Node may use for its heap; the rest is for code, threads and buffers
_EXTRA_PROCESSES = 64  # processes in addition to those that the user already has


def main() -> None:
    """Isolate and limit this process, then run the code of the job."""
    job = json.load(sys.stdin.buffer)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    is_isolated = _isolate()
    if job["must_isolate"] and not is_isolated:
        sys.stderr.write("This machine does not allow the namespaces that the sandbox needs.\n")
        _exit(EXIT_NOT_ISOLATED)
    _die_with_parent()
    if os.getppid() != job["parent"]:  # the parent died before the kernel knew that this process ends with it
        _exit(EXIT_NOT_ISOLATED)
    _set_limits(job["limits"], job["language"], is_isolated)
    if sys.platform == "linux":
        _fork_and_watch(job, is_isolated)
    else:
        os.close(job["files"])
    if job["language"] == "python":
        _run_python(job)
    else:
        _become_node(job)


# -- isolation --------------------------------------------------------------------------------------------------------
def _isolate() -> bool:
    """Create namespaces without a network, whose processes end with the first one; return False if not allowed."""
    if sys.platform != "linux":
        return False
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_USER | _NEW_PIDS | _NEW_NETWORK | _NEW_IPC | _NEW_MOUNTS) != 0:
        return False
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with contextlib.suppress(OSError):  # without a map the user has no name inside, which is harmless
            Path(f"/proc/self/{name}").write_text(text)
    return True


def _die_with_parent() -> None:
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _set_limits(limits: Mapping[str, int], language: str, is_isolated: bool) -> None:
    processes = limits["processes"] if is_isolated else _count_user_threads() + _EXTRA_PROCESSES
    values = {
        resource.RLIMIT_CPU: limits["cpu"],
        resource.RLIMIT_FSIZE: limits["file"],
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_NPROC: processes,
        resource.RLIMIT_CORE: 0,
    }
    if language == "python":
        values[resource.RLIMIT_AS] = limits["memory"]
    elif sys.platform == "linux":  # Node reserves far more address space than it uses, so only writable memory counts
        values[resource.RLIMIT_DATA] = limits["memory"]
    for kind, value in values.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _count_user_threads() -> int:
    """Return how many threads this user has on the machine; all of them count towards the limit."""
    count = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError, ValueError):
            if status.stat().st_uid == os.getuid():
                text = status.read_text()
                count += int(text.partition("\nThreads:")[2].split(maxsplit=1)[0])
    return count


def _fork_and_watch(job: Mapping[str, Any], is_isolated: bool) -> None:
    """Fork and continue in the child; this process watches the memory of the program and ends with its exit code.

    With namespaces, a third process is between the two: the first process of the new namespace. All other processes of
    the namespace end when it ends, and they can neither stop nor change it. It ends when this process ends. Each of the
    two ends with the exit code of the next process.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # before the first process of the namespace replaces the root of this process, too
    processes = _open_folder("/proc")
    if (first := os.fork()) != 0:
        os.close(job["result"])
        os.close(job["files"])
        _watch_memory(first, processes, job["limits"]["memory"], is_isolated)
    os.close(processes)
    _die_with_parent()
    with contextlib.suppress(OSError):  # when memory is short, the kernel kills the program and not the worker
        Path("/proc/self/oom_score_adj").write_text("1000")
    seccomp = _load_module("seccomp")  # loaded now, since its file does not exist in the new root
    if is_isolated:
        _enter_namespace(job, libc)
    os.close(job["files"])
    if not seccomp.install_filter() and job["must_isolate"]:
        sys.stderr.write("This machine does not allow the filter of system calls that the sandbox needs.\n")
        _exit(EXIT_NOT_ISOLATED)


def _enter_namespace(job: Mapping[str, Any], libc: ctypes.CDLL) -> None:
    """Build the program's root as the first process of the namespace, then fork and continue in the second one."""
    limits = job["limits"]
    try:
        _load_module("mounts").build_root(
            job["root"], job["folder"], job["shown"], disk=limits["disk"], files=limits["files"]
        )
        _send_folder(job)
    except OSError as error:  # for example, a container in which mounting is not allowed
        if job["must_isolate"]:
            sys.stderr.write(f"This machine does not allow the mounts that the sandbox needs: {error}\n")
            _exit(EXIT_NOT_ISOLATED)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # so that the program cannot trace this process
    if (inner := os.fork()) != 0:
        os.close(job["result"])
        os.close(job["files"])
        _exit_like(inner)
    _die_with_parent()
    _drop_capabilities(libc)
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def _send_folder(job: Mapping[str, Any]) -> None:
    """Send the worker a descriptor of the program's folder, whose file system exists only in this namespace."""
    folder = os.open(job["folder"], os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(fileno=os.dup(job["files"])) as to_worker:
        socket.send_fds(to_worker, [b"."], [folder])
    os.close(folder)


# -- memory -----------------------------------------------------------------------------------------------------------
def _watch_memory(first: int, processes: int, most: int, is_isolated: bool) -> None:
    """Wait for a child and end with its exit code; kill all its processes if they exceed the memory limit together."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    inside: int | None = None
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == first:
            code = os.waitstatus_to_exitcode(status)
            _kill_all(first, processes, is_isolated)
            os._exit(code if code >= 0 else 128 - code)
        if ended == 0:
            signal.sigtimedwait({signal.SIGCHLD}, _MEMORY_CHECK_INTERVAL)
            if inside is None and is_isolated:
                inside = _open_namespace_proc(processes)
            if inside is not None:
                used = _measure_memory(inside, [process for process in _list_processes(inside) if process != 1], most)
            else:
                used = _measure_memory(
                    processes, list(_descendants(processes, first if is_isolated else os.getpid())), most
                )
            if used > most:
                os.write(2, f"The program and its processes used more than {most} bytes of memory together.\n".encode())
                _kill_all(first, processes, is_isolated)
                os._exit(128 + signal.SIGKILL)


def _kill_all(first: int, processes: int, is_isolated: bool) -> None:
    """Kill the program and all processes that it has started; the first one of a namespace ends all others."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(first, signal.SIGKILL)
    if not is_isolated:
        while found := list(_descendants(processes, os.getpid())):
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)


def _open_namespace_proc(processes: int) -> int | None:
    """Open `/proc` of the program's namespace, which lists only its processes; None if it does not exist yet."""
    try:
        is_another = os.stat("/proc").st_dev != os.fstat(processes).st_dev
        return _open_folder("/proc") if is_another and os.path.exists("/proc/1/statm") else None
    except OSError:  # the new root is being built
        return None


def _open_folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def _list_processes(processes: int) -> list[int]:
    return [int(name) for name in _list_folder(processes, ".") if name.isdigit()]


def _descendants(processes: int, top: int) -> Iterator[int]:
    """Yield all descendants of a process."""
    if _exists(processes, f"{os.getpid()}/task/{os.getpid()}/children"):
        children = _children_of(processes, top)
    else:  # a kernel without lists of children
        children = [process for process in _list_processes(processes) if _parent_of(processes, process) == top]
    for child in children:
        yield child
        yield from _descendants(processes, child)


def _children_of(processes: int, parent: int) -> list[int]:
    threads = _list_folder(processes, f"{parent}/task")
    return [int(child) for each in threads for child in _read_file(processes, f"{parent}/task/{each}/children").split()]


def _parent_of(processes: int, process: int) -> int | None:
    fields = _read_file(processes, f"{process}/stat").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else None


def _measure_memory(processes: int, found: Sequence[int], most: int) -> int:
    """Return the bytes that processes use together; shared pages count once if the sum exceeds `most`."""
    resident = sum(_resident_memory(processes, process) for process in found)
    return resident if resident <= most else sum(_proportional_memory(processes, process) for process in found)


def _resident_memory(processes: int, process: int) -> int:
    fields = _read_file(processes, f"{process}/statm").split()
    return int(fields[1]) * resource.getpagesize() if len(fields) > 1 else 0


def _proportional_memory(processes: int, process: int) -> int:
    """Return the memory of a process with its share of shared pages, or all of it if the kernel does not report it.

    A process that has ended meanwhile has none.
    """
    for line in _read_file(processes, f"{process}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return _resident_memory(processes, process)


def _list_folder(processes: int, path: str) -> list[str]:
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=processes)
    except OSError:  # the process has ended
        return []
    try:
        return os.listdir(folder)
    except OSError:
        return []
    finally:
        os.close(folder)


def _exists(processes: int, path: str) -> bool:
    try:
        os.stat(path, dir_fd=processes)
    except OSError:
        return False
    return True


def _read_file(processes: int, path: str) -> str:
    """Read a file of `/proc`; return "" if the process has ended."""
    try:
        with open(os.open(path, os.O_RDONLY, dir_fd=processes)) as file:
            return file.read()
    except OSError:
        return ""


def _load_module(name: str) -> Any:
    """Load a module beside this one by its path, since this interpreter's search path does not contain Easel."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _exit_like(child: int) -> None:
    """Wait for a child, and for processes that it left to this one, and end with the child's exit code."""
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Drop the capabilities that the creator of a namespace has in it: mounts, networks, tracing."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    none_of_them = (ctypes.c_uint32 * 6)()
    libc.capset(header, none_of_them)


# -- running the code -------------------------------------------------------------------------------------------------
def _run_python(job: Mapping[str, Any]) -> None:
    try:
        text = json.dumps(_call_main(job["script"], job["arguments"]))
    except SystemExit as end:
        _exit(end.code if isinstance(end.code, int) else int(end.code is not None))
    except BaseException as error:  # noqa: BLE001 (every error of the code is printed and ends the program)
        _print_traceback(error, job["script"])
        _exit(1)
    else:
        _write(job["result"], (job["nonce"] + text).encode())
        _exit(0)


def _call_main(script: str, arguments: Mapping[str, Any]) -> Any:
    spec = importlib.util.spec_from_file_location("main", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["main"] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, "main", None)):
        raise NameError("The script does not define a function main.")
    value = module.main(**arguments)
    return asyncio.run(_await_value(value)) if inspect.isawaitable(value) else value


async def _await_value(value: Any) -> Any:
    return await value


def _print_traceback(error: BaseException, script: str) -> None:
    """Print the traceback, starting at the script's own lines."""
    place: TracebackType | None = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename != script:
        place = place.tb_next
    traceback.print_exception(type(error), error, place)


def _become_node(job: Mapping[str, Any]) -> None:
    """Replace this process with Node, which reads the rest of the job from its standard input."""
    rest = {name: job[name] for name in ("nonce", "result", "script", "arguments")}
    with tempfile.TemporaryFile() as source:
        source.write(json.dumps(rest).encode())
        source.seek(0)
        os.dup2(source.fileno(), 0)
    os.set_inheritable(job["result"], True)
    memory = int(job["limits"]["memory"] * _HEAP_SHARE) // (1024 * 1024)
    os.execv(job["node"], [job["node"], f"--max-old-space-size={memory}", job["harness"]])  # noqa: S606 (no shell is what we want)


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


def _exit(code: int) -> None:
    """Exit at once, without waiting for threads or running exit handlers of the code."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
