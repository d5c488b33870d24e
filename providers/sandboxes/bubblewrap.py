"""How the local sandbox starts a program that bubblewrap isolates, and whether bubblewrap works on this machine.

    found = find_bubblewrap("bwrap")   ->  Bubblewrap("/usr/bin/bwrap", "0.8.0", defect=""); None if it is not installed
    with contextlib.ExitStack() as stack:
        start = prepare_command(found.path, folder, shown, disk=..., stack=stack)
        subprocess.Popen([*start.command, "python", ...], pass_fds=start.descriptors)

bubblewrap creates the namespaces, builds the root that `providers/sandboxes/inside/mounts.py` describes, drops all
capabilities and sets the filter of system calls. The started command is the first process of its namespace: no process
inside can stop it, and all others end with it. bubblewrap limits the bytes of a file system in memory, and not the
number of its files: `file_limits` says what the started command has to count.
"""

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from providers.sandboxes.inside import mounts, seccomp

_PROBE_TIMEOUT = 20.0  # seconds
_PROBE = "open('/proc/1/statm')"  # memory of programs is measured there
_EMPTY_FOLDER = 4096  # bytes
# bubblewrap cannot do this, and /proc is read-only inside: when memory is short, the kernel kills the program first
_LAUNCH = ("/bin/sh", "-c", 'echo 1000 2>/dev/null >/proc/self/oom_score_adj; exec "$0" "$@"')
_NAMESPACES = (
    "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
    "--disable-userns", "--cap-drop", "ALL", "--die-with-parent", "--as-pid-1",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """A bubblewrap that is installed. `defect` says why it cannot isolate programs here; "" if it can."""

    path: str
    version: str
    defect: str


@dataclass(frozen=True, slots=True)
class IsolatedCommand:
    """The beginning of a command line that starts an isolated program, and the descriptors that it needs."""

    command: list[str]
    descriptors: list[int]


@functools.cache
def find_bubblewrap(name: str) -> Bubblewrap | None:
    """Return the installed bubblewrap, after trying it once per process; None if it is not installed."""
    path = shutil.which(name) if sys.platform == "linux" and name else None
    if path is None:
        return None
    return Bubblewrap(path, _read_version(path), _find_defect(path))


def prepare_command(
    path: str, folder: Path, shown: Iterable[Path], *, disk: int, stack: contextlib.ExitStack
) -> IsolatedCommand:
    """Return how to start a command in a root of its own, in which `folder` is limited to `disk` bytes.

    The root contains the paths in `shown`, read-only, and a copy of what `folder` contains: files, and empty folders.
    The stack closes the descriptors, which bubblewrap reads at its start. Raises OSError if the processor is one that
    the filter of system calls does not know.
    """
    descriptors: list[int] = []

    def pass_on(descriptor: int) -> str:
        stack.callback(os.close, descriptor)
        descriptors.append(descriptor)
        return str(descriptor)

    command = [*_LAUNCH, path, *_NAMESPACES]
    for place in mounts.SCRATCH:
        command += _tmpfs(place, mounts.SCRATCH_SIZE, "1777")
    command += _read_only_binds([*mounts.SYSTEM, *mounts.CONFIGURATION, *map(str, shown)])
    for name, text in mounts.etc_files().items():
        command += ["--perms", "0644", "--file", pass_on(_memory_file(text.encode())), name]
    command += _devices()
    command += _tmpfs(str(folder), disk, "0700")
    for entry in folder.iterdir():
        if entry.is_dir():
            command += ["--perms", "0755", "--dir", str(entry)]
        else:
            command += ["--perms", "0644", "--file", pass_on(os.open(entry, os.O_RDONLY)), str(entry)]
    command += _proc()
    command += ["--remount-ro", "/", "--seccomp", pass_on(_memory_file(_system_call_filter())), "--chdir", str(folder)]
    return IsolatedCommand([*command, "--"], descriptors)


def file_limits(folder: Path, files: int) -> dict[str, int]:
    """Return the path of each file system that a program may write to, and how many files it may have."""
    return {str(folder): files} | dict.fromkeys((*mounts.SCRATCH, mounts.SHARED_MEMORY), mounts.SCRATCH_FILES)


def _read_only_binds(places: Iterable[str]) -> Iterator[str]:
    """Yield the options that show paths of the machine read-only at the same paths, links as links."""
    bound = set[str]()
    waiting = list(reversed(list(places)))
    while waiting:
        place = waiting.pop()
        if not os.path.exists(place) or _is_covered(place, bound):
            continue
        bound.add(place)
        if os.path.islink(place):
            yield from ("--symlink", os.readlink(place), place)
            waiting.append(os.path.realpath(place))
        else:
            yield from ("--ro-bind", place, place)


def _is_covered(place: str, bound: set[str]) -> bool:
    """Return whether a path exists in the root already, or would hide a folder of the program's own."""
    path = Path(place)
    own = (Path(scratch) for scratch in mounts.SCRATCH)
    return not bound.isdisjoint(map(str, (path, *path.parents))) or any(path in (o, *o.parents) for o in own)


def _devices() -> Iterator[str]:
    yield from _tmpfs(mounts.SHARED_MEMORY, mounts.SCRATCH_SIZE, "1777")
    for name in mounts.DEVICES:
        yield from ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    for name, target in mounts.LINKS.items():
        yield from ("--symlink", target, f"/dev/{name}")


def _proc() -> Iterator[str]:
    """Yield the options for a read-only `/proc` without entries that describe the kernel and not processes."""
    yield from ("--proc", "/proc")
    for place in (f"/proc/{name}" for name in mounts.HIDDEN):
        if os.path.isdir(place):
            yield from (*_tmpfs(place, _EMPTY_FOLDER, "0555"), "--remount-ro", place)
        elif os.path.exists(place):
            yield from ("--dev-bind", "/dev/null", place)
    yield from ("--remount-ro", "/proc")


def _tmpfs(place: str, size: int, mode: str) -> tuple[str, ...]:
    return "--perms", mode, "--size", str(size), "--tmpfs", place


def _memory_file(content: bytes) -> int:
    """Return a descriptor from which the content can be read."""
    descriptor = os.memfd_create("easel")
    with open(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _system_call_filter() -> bytes:
    numbers = seccomp.NUMBERS.get(os.uname().machine)
    if numbers is None:
        raise OSError(f"the numbers of system calls are not known for {os.uname().machine}")
    return seccomp.filter_program(numbers)


def _read_version(path: str) -> str:
    try:
        shown = subprocess.run(  # noqa: S603 (a program of the machine, without any input)
            [path, "--version"], capture_output=True, text=True, timeout=_PROBE_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return shown.stdout.strip().removeprefix("bubblewrap ") or "unknown"


def _find_defect(path: str) -> str:
    """Start an isolated interpreter; return why that is not possible, or ""."""
    shown = [place for place in (Path(sys.prefix), Path(sys.base_prefix)) if place != Path("/")]
    try:
        with tempfile.TemporaryDirectory(prefix="easel-probe-") as folder, contextlib.ExitStack() as stack:
            start = prepare_command(path, Path(folder), shown, disk=_EMPTY_FOLDER, stack=stack)
            probe = subprocess.run(  # noqa: S603 (all of it is ours)
                [*start.command, sys.executable, "-I", "-S", "-c", _PROBE],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                pass_fds=start.descriptors, timeout=_PROBE_TIMEOUT, check=False,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it does not end within {_PROBE_TIMEOUT:g} s"
    except OSError as error:
        return str(error)
    reason = probe.stderr.decode("utf-8", "replace").strip().splitlines()
    return "" if probe.returncode == 0 else (reason or [f"exit code {probe.returncode}"])[-1].removeprefix("bwrap: ")
