"""The program that the local sandbox starts: it limits itself, and isolates itself if it has to, then runs the code.

It is started by its path in an interpreter of its own, does not import Easel, and reads its job from standard input:

    {"nonce", "result", "files", "parent", "language", "script", "arguments", "node", "harness", "limits",
     "must_isolate", "folder", "root", "shown", "in_bubblewrap", "file_limits"}

The result is written to the descriptor `result`, after the nonce, so that printed text is never mistaken for it. If
only this namespace can reach the program's folder, a descriptor of the folder is sent over the socket `files`.

On Linux a process keeps running beside the program and measures the memory that all its processes use together. In an
isolated namespace it is the first process, which the others can neither stop nor change, and they end when it ends. If
bubblewrap has created the namespace and started this file in it (`in_bubblewrap`), that process also counts the files
in each file system that the program may write to (`file_limits`).
"""

import asyncio
import contextlib
import ctypes
import importlib.util
import inspect
import json
import os
import resource
import select
import signal
import socket
import sys
import tempfile
import time
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
_CHECK_INTERVAL = 0.05  # seconds between two measurements of what all processes use together
_HEAP_SHARE = 0.75  # share of its memory that Node may use for its heap; the rest is for code, threads and buffers
_EXTRA_PROCESSES = 64  # processes in addition to those that the user already has


def main() -> None:
    """Isolate and limit this process, then run the code of the job."""
    job = json.load(sys.stdin.buffer)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if job["in_bubblewrap"]:
        _set_limits(job["limits"], job["language"], is_isolated=True)
        _fork_in_bubblewrap(job)
    else:
        _isolate_and_fork(job)
    if job["language"] == "python":
        _run_python(job)
    else:
        _become_node(job)


# -- isolation by bubblewrap ------------------------------------------------------------------------------------------
def _fork_in_bubblewrap(job: Mapping[str, Any]) -> None:
    """Fork and continue in the child; this process, the first one of the namespace, watches the program."""
    if _is_closed(job["files"]):  # the worker died before the kernel knew that bubblewrap ends with it
        _exit(EXIT_NOT_ISOLATED)
    _send_folder(job)
    counted = {path: _open_folder(path) for path in job["file_limits"]}
    _set_dumpable(False)  # so that the program cannot trace this process
    _fork_and_watch(job, _open_folder("/proc"), counted)
    _set_dumpable(True)
    os.close(job["files"])


def _is_closed(descriptor: int) -> bool:
    """Return whether the other end of a socket is closed."""
    other_end = select.poll()
    other_end.register(descriptor, 0)
    return bool(other_end.poll(0))


# -- isolation by this process ----------------------------------------------------------------------------------------
def _isolate_and_fork(job: Mapping[str, Any]) -> None:
    """Isolate this process as far as the kernel allows, limit it, fork and continue in the child."""
    is_isolated = _isolate()
    if job["must_isolate"] and not is_isolated:
        sys.stderr.write("This machine does not allow the namespaces that the sandbox needs.\n")
        _exit(EXIT_NOT_ISOLATED)
    _die_with_parent()
    if os.getppid() != job["parent"]:  # the parent died before the kernel knew that this process ends with it
        _exit(EXIT_NOT_ISOLATED)
    _set_limits(job["limits"], job["language"], is_isolated)
    if sys.platform == "linux":
        _isolate_and_watch(job, is_isolated)
    else:
        os.close(job["files"])


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


def _isolate_and_watch(job: Mapping[str, Any], is_isolated: bool) -> None:
    """Fork and continue in the child, which the process before it watches: this one or, with namespaces, a third one.

    The third one is the first process of the new namespace. It ends when this process ends, and this process ends with
    its exit code.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    processes = _open_folder("/proc")
    seccomp = _load_module("seccomp")  # loaded now, since its file does not exist in the new root
    if is_isolated:
        if (first := os.fork()) != 0:
            os.close(job["result"])
            os.close(job["files"])
            _exit_like(first)
        _die_with_parent()
        _prefer_for_oom_kill()
        _build_root(job)
        _set_dumpable(False)  # so that the program cannot trace this process
    _fork_and_watch(job, processes, {})
    _die_with_parent()
    if is_isolated:
        _drop_capabilities(libc)
        _set_dumpable(True)
    else:
        _prefer_for_oom_kill()
    os.close(job["files"])
    if not seccomp.install_filter() and job["must_isolate"]:
        sys.stderr.write("This machine does not allow the filter of system calls that the sandbox needs.\n")
        _exit(EXIT_NOT_ISOLATED)


def _prefer_for_oom_kill() -> None:
    """When memory is short, let the kernel kill the program and not the worker."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _build_root(job: Mapping[str, Any]) -> None:
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


def _set_dumpable(dumpable: bool) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, int(dumpable), 0, 0, 0)


def _send_folder(job: Mapping[str, Any]) -> None:
    """Send the worker a descriptor of the program's folder, whose file system exists only in this namespace."""
    folder = os.open(job["folder"], os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(fileno=os.dup(job["files"])) as to_worker:
        socket.send_fds(to_worker, [b"."], [folder])
    os.close(folder)


# -- watching the program ---------------------------------------------------------------------------------------------
def _fork_and_watch(job: Mapping[str, Any], machine: int, counted: Mapping[str, int]) -> None:
    """Fork and continue in the child. This process ends with its exit code, and kills it once it exceeds a limit.

    `machine` is an open `/proc` that existed before this process got a root of its own; `counted` are open folders
    whose files are counted, by path.
    """
    if (program := os.fork()) == 0:
        for descriptor in (machine, *counted.values()):
            os.close(descriptor)
        return
    os.close(job["result"])
    os.close(job["files"])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    processes = _open_namespace_proc()
    check_at = time.monotonic() + _CHECK_INTERVAL
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == program:
            code = os.waitstatus_to_exitcode(status)
            _kill_all(program, machine)
            os._exit(code if code >= 0 else 128 - code)
        if ended == 0:
            signal.sigtimedwait({signal.SIGCHLD}, max(check_at - time.monotonic(), 0))
        if time.monotonic() >= check_at:  # also while many processes end
            if excess := _find_excess(job, processes, machine, counted):
                os.write(2, excess.encode())
                _kill_all(program, machine)
                os._exit(128 + signal.SIGKILL)
            check_at = time.monotonic() + _CHECK_INTERVAL


def _find_excess(job: Mapping[str, Any], processes: int | None, machine: int, counted: Mapping[str, int]) -> str:
    """Return which limit the processes of the program exceed together, or ""."""
    most: int = job["limits"]["memory"]
    if processes is not None:
        used = _measure_memory(processes, [process for process in _list_processes(processes) if process != 1], most)
    else:
        this = int(os.readlink("self", dir_fd=machine))
        used = _measure_memory(machine, list(_descendants(machine, this)), most)
    if used > most:
        return f"The program and its processes used more than {most} bytes of memory together.\n"
    for path, folder in counted.items():
        if _count_files(folder) > (limit := job["file_limits"][path]):
            return f"The program left more than {limit} files in {'its folder' if path == job['folder'] else path}.\n"
    return ""


def _count_files(folder: int) -> int:
    """Return the number of files in the file system of an open folder, also of those that have no name any more.

    A path would not do: the program may rename a folder that its own folder is in.
    """
    found = os.fstatvfs(folder)
    return found.f_files - found.f_ffree


def _kill_all(program: int, processes: int) -> None:
    """Kill the program and all processes that it has started; the first process of a namespace ends all by its end."""
    if os.getpid() == 1:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(program, signal.SIGKILL)
    while found := list(_descendants(processes, os.getpid())):
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _open_namespace_proc() -> int | None:
    """Open `/proc` if it lists the processes of this process's own namespace, of which it is the first one."""
    try:
        return _open_folder("/proc") if os.readlink("/proc/self") == "1" else None
    except OSError:  # parts of the machine's /proc are hidden, so the new root has an empty one
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
