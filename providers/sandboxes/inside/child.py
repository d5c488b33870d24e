"""The program that the local sandbox starts: it shuts itself in, and then becomes the code that it was given.

It runs by its path in an interpreter of its own, knows nothing of Easel, and reads what to do from its standard input:

    {"nonce", "result", "files", "parent", "language", "script", "arguments", "node", "harness", "limits",
     "must_isolate", "folder", "root", "shown"}

The result goes to the descriptor `result`, behind the nonce, so that nothing that is printed can be taken for it. Over
the socket `files` goes a descriptor of the program's folder, where only the program and this process could reach it.

On Linux this process stays beside the program and adds up what memory all its processes use together.
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

REFUSED = 125  # exit code: it would have had to run without walls
_NEW_USER, _NEW_PIDS, _NEW_NETWORK, _NEW_IPC, _NEW_MOUNTS = 0x10000000, 0x20000000, 0x40000000, 0x08000000, 0x00020000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_PR_SET_CHILD_SUBREAPER = 36
_CAPABILITIES_V3 = 0x20080522
_MEASURED_EVERY = 0.05  # seconds between two looks at the memory of all processes
_HEAP_SHARE = 0.75  # of its memory that Node may use for its heap; the rest is for its code, its threads and buffers
_LEAST_ROOM = 64  # processes beside those that the user has already


def main() -> None:
    told = json.load(sys.stdin.buffer)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    is_isolated = _isolate()
    if told["must_isolate"] and not is_isolated:
        sys.stderr.write("This machine does not allow the namespaces that the sandbox needs.\n")
        _end(REFUSED)
    _die_with_parent()
    if os.getppid() != told["parent"]:  # it died before it could take us along
        _end(REFUSED)
    _limit(told["limits"], told["language"], is_isolated)
    if sys.platform == "linux":
        _continue_watched(told, is_isolated)
    else:
        os.close(told["files"])
    if told["language"] == "python":
        _run_python(told)
    else:
        _become_node(told)


# -- walls ------------------------------------------------------------------------------------------------------------
def _isolate() -> bool:
    """No network, and processes that all end with the first; False where the kernel does not allow it."""
    if sys.platform != "linux":
        return False
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_USER | _NEW_PIDS | _NEW_NETWORK | _NEW_IPC | _NEW_MOUNTS) != 0:
        return False
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with contextlib.suppress(OSError):  # without a map the user has no name inside, which hurts nobody
            Path(f"/proc/self/{name}").write_text(text)
    return True


def _die_with_parent() -> None:
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _limit(limits: Mapping[str, int], language: str, is_isolated: bool) -> None:
    processes = limits["processes"] if is_isolated else _own_tasks() + _LEAST_ROOM
    wanted = {
        resource.RLIMIT_CPU: limits["cpu"],
        resource.RLIMIT_FSIZE: limits["file"],
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_NPROC: processes,
        resource.RLIMIT_CORE: 0,
    }
    if language == "python":
        wanted[resource.RLIMIT_AS] = limits["memory"]
    elif (
        sys.platform == "linux"
    ):  # Node reserves far more address space than it ever uses; only what it may write counts
        wanted[resource.RLIMIT_DATA] = limits["memory"]
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _own_tasks() -> int:
    """How many threads this user has on the machine; they all count against the limit."""
    count = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError, ValueError):
            if status.stat().st_uid == os.getuid():
                text = status.read_text()
                count += int(text.partition("\nThreads:")[2].split(maxsplit=1)[0])
    return count


def _continue_watched(told: Mapping[str, Any], is_isolated: bool) -> None:
    """Go on in a process that cannot outlive this one, nor leave others behind.

    Where there are namespaces, between the two stands the first process of the new one: all others in it end when it
    does, and they can neither stop it nor change it. It ends when this one does. Each of both tells how the next one
    ended.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    processes = _opened("/proc")  # as it is now: the first process builds another root, for this one as well
    if (first := os.fork()) != 0:
        os.close(told["result"])
        os.close(told["files"])
        _watch(first, processes, told["limits"]["memory"], is_isolated)
    os.close(processes)
    _die_with_parent()
    with contextlib.suppress(OSError):  # where the machine's memory is short, the program goes and not the worker
        Path("/proc/self/oom_score_adj").write_text("1000")
    calls = _module("seccomp")  # its file is not behind the walls
    if is_isolated:
        _go_behind_walls(told, libc)
    os.close(told["files"])
    if not calls.refuse() and told["must_isolate"]:
        sys.stderr.write("This machine does not allow the filter of system calls that the sandbox needs.\n")
        _end(REFUSED)


def _go_behind_walls(told: Mapping[str, Any], libc: ctypes.CDLL) -> None:
    """Build the program's root as the first process of the namespace, and go on in the second."""
    limits = told["limits"]
    try:
        _module("mounts").build(told["root"], told["folder"], told["shown"], disk=limits["disk"], files=limits["files"])
        _send_folder(told)
    except OSError as error:  # a container that lets nobody mount anything
        if told["must_isolate"]:
            sys.stderr.write(f"This machine does not allow the mounts that the sandbox needs: {error}\n")
            _end(REFUSED)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # nobody traces it
    if (inner := os.fork()) != 0:
        os.close(told["result"])
        os.close(told["files"])
        _end_as(inner)
    _die_with_parent()
    _give_up_capabilities(libc)
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def _send_folder(told: Mapping[str, Any]) -> None:
    """Let the worker reach the program's folder, which is on a file system of this namespace alone."""
    folder = os.open(told["folder"], os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(fileno=os.dup(told["files"])) as to_worker:
        socket.send_fds(to_worker, [b"."], [folder])
    os.close(folder)


# -- memory -----------------------------------------------------------------------------------------------------------
def _watch(first: int, processes: int, most: int, is_isolated: bool) -> None:
    """Wait for a child and end the way it ended; kill it when all processes together use more memory than they may."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    inside: int | None = None
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == first:
            code = os.waitstatus_to_exitcode(status)
            _kill_all(first, processes, is_isolated)
            os._exit(code if code >= 0 else 128 - code)
        if ended == 0:
            signal.sigtimedwait({signal.SIGCHLD}, _MEASURED_EVERY)
            if inside is None and is_isolated:
                inside = _namespace_of(processes)
            if inside is not None:
                used = _memory(inside, [process for process in _numbers(inside) if process != 1], most)
            else:
                used = _memory(processes, list(_below(processes, first if is_isolated else os.getpid())), most)
            if used > most:
                os.write(2, f"The program and its processes used more than {most} bytes of memory together.\n".encode())
                _kill_all(first, processes, is_isolated)
                os._exit(128 + signal.SIGKILL)


def _kill_all(first: int, processes: int, is_isolated: bool) -> None:
    """End the program and all that it has started: with the first of a namespace all others go."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(first, signal.SIGKILL)
    if not is_isolated:
        while found := list(_below(processes, os.getpid())):
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)


def _namespace_of(processes: int) -> int | None:
    """`/proc` of the program's own namespace, which lists its processes and no others; None while there is none."""
    try:
        is_another = os.stat("/proc").st_dev != os.fstat(processes).st_dev
        return _opened("/proc") if is_another and os.path.exists("/proc/1/statm") else None
    except OSError:  # the walls are being built
        return None


def _opened(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def _numbers(processes: int) -> list[int]:
    return [int(name) for name in _listed(processes, ".") if name.isdigit()]


def _below(processes: int, top: int) -> Iterator[int]:
    """All processes that a process has started, and those have."""
    if _exists(processes, f"{os.getpid()}/task/{os.getpid()}/children"):
        children = _children_of(processes, top)
    else:  # a kernel that keeps no lists of children
        children = [process for process in _numbers(processes) if _parent_of(processes, process) == top]
    for child in children:
        yield child
        yield from _below(processes, child)


def _children_of(processes: int, parent: int) -> list[int]:
    threads = _listed(processes, f"{parent}/task")
    return [int(child) for each in threads for child in _read(processes, f"{parent}/task/{each}/children").split()]


def _parent_of(processes: int, process: int) -> int | None:
    fields = _read(processes, f"{process}/stat").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else None


def _memory(processes: int, found: Sequence[int], most: int) -> int:
    """Bytes that processes hold together. What several of them share counts once, if it matters and may be seen."""
    resident = {process: _resident(processes, process) for process in found}
    if sum(resident.values()) <= most:
        return sum(resident.values())
    return sum(_share(processes, process, size) for process, size in resident.items())


def _resident(processes: int, process: int) -> int:
    fields = _read(processes, f"{process}/statm").split()
    return int(fields[1]) * resource.getpagesize() if len(fields) > 1 else 0


def _share(processes: int, process: int, resident: int) -> int:
    """What a process holds, of shared pages its part; all of it where the kernel does not say."""
    for line in _read(processes, f"{process}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return resident


def _listed(processes: int, path: str) -> list[str]:
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=processes)
    except OSError:  # it has ended
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


def _read(processes: int, path: str) -> str:
    """A file of `/proc`; nothing for a process that has ended."""
    try:
        with open(os.open(path, os.O_RDONLY, dir_fd=processes)) as file:
            return file.read()
    except OSError:
        return ""


def _module(name: str) -> Any:
    """A module beside this one; it is found by its path, for nothing of Easel is on this interpreter's path."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _end_as(child: int) -> None:
    """Wait for a child, and for all that were left to this process meanwhile, and end the way it ended."""
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _give_up_capabilities(libc: ctypes.CDLL) -> None:
    """Whoever makes a namespace may do everything in it: mount, set up networks, trace. The code need not."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    none_of_them = (ctypes.c_uint32 * 6)()
    libc.capset(header, none_of_them)


# -- work -------------------------------------------------------------------------------------------------------------
def _run_python(told: Mapping[str, Any]) -> None:
    try:
        text = json.dumps(_value(told["script"], told["arguments"]))
    except SystemExit as end:
        _end(end.code if isinstance(end.code, int) else int(end.code is not None))
    except BaseException as error:  # noqa: BLE001 (whatever the code raises is told, and is the end of it)
        _tell(error, told["script"])
        _end(1)
    else:
        _write(told["result"], (told["nonce"] + text).encode())
        _end(0)


def _value(script: str, arguments: Mapping[str, Any]) -> Any:
    spec = importlib.util.spec_from_file_location("main", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["main"] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, "main", None)):
        raise NameError("The script does not define a function main.")
    value = module.main(**arguments)
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value


def _tell(error: BaseException, script: str) -> None:
    """The traceback from the script's own lines on."""
    place: TracebackType | None = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename != script:
        place = place.tb_next
    traceback.print_exception(type(error), error, place)


def _become_node(told: Mapping[str, Any]) -> None:
    """Replace this process with Node, which reads on its standard input what is left to do."""
    left = {name: told[name] for name in ("nonce", "result", "script", "arguments")}
    with tempfile.TemporaryFile() as source:
        source.write(json.dumps(left).encode())
        source.seek(0)
        os.dup2(source.fileno(), 0)
    os.set_inheritable(told["result"], True)
    memory = int(told["limits"]["memory"] * _HEAP_SHARE) // (1024 * 1024)
    os.execv(told["node"], [told["node"], f"--max-old-space-size={memory}", told["harness"]])  # noqa: S606 (no shell is what we want)


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


def _end(code: int) -> None:
    """The end, whatever threads or exit handlers the code has left."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
