"""Builds the root file system of a program in the local sandbox, from mounts in a namespace of its own.

    build_root(root, folder, shown, disk=..., files=...)

The new root contains, read-only, the system's programs and libraries and the paths in `shown`; `folder`, writable, as a
file system in memory of limited size; `/proc` with the program's own processes, read-only; and the usual devices in
`/dev`. It does not contain home directories, settings or files of other programs, and of `/etc` only files that
libraries look for. Building it needs the rights that the creator of a namespace has in it.
"""

import contextlib
import ctypes
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

_READ_ONLY, _NO_SETUID, _NO_DEVICES, _NO_PROGRAMS = 1, 2, 4, 8
_REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}  # system call numbers; the C library has no function for it

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
CONFIGURATION = (
    "/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime", "/etc/timezone", "/etc/mime.types", "/etc/fonts",
    "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/nsswitch.conf",
)  # fmt: skip
DEVICES = ("null", "zero", "full", "random", "urandom")
LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
HIDDEN = (
    "acpi", "asound", "config.gz", "interrupts", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup",
    "kpagecount", "kpageflags", "latency_stats", "modules", "pagetypeinfo", "sched_debug", "scsi", "slabinfo",
    "timer_list", "timer_stats", "vmallocinfo",
)  # fmt: skip
SCRATCH, SHARED_MEMORY = ("/tmp", "/var/tmp"), "/dev/shm"  # noqa: S108 (they are the program's own)
SCRATCH_SIZE, SCRATCH_FILES = 32 * 1024 * 1024, 2000  # bytes and files in each of them
_EMPTY_TMPFS = "size=4k,mode=555"
_SMALL_TMPFS, _SCRATCH_TMPFS = "size=1m,mode=755", f"size={SCRATCH_SIZE},mode=1777,nr_inodes={SCRATCH_FILES}"


def build_root(root: str, folder: str, shown: Iterable[str], *, disk: int, files: int) -> None:
    """Build the new root and move this process, with all its later children, into it. Raises OSError.

    The content of `folder` is copied into the new root, where the folder is limited to `disk` bytes and `files` files.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _mount(libc, None, "/", None, _RECURSIVE | _PRIVATE)
    _mount(libc, "none", root, "tmpfs", _NO_SETUID | _NO_DEVICES, _SMALL_TMPFS)
    for place in SCRATCH:
        os.makedirs(root + place)
        _mount(libc, "none", root + place, "tmpfs", _NO_SETUID | _NO_DEVICES, _SCRATCH_TMPFS)
    for place in (*SYSTEM, *CONFIGURATION, *shown):  # some of them may be inside the folders that were just created
        _bind_read_only(libc, root, place)
    _make_etc(root)
    _make_devices(libc, root)
    os.makedirs(root + folder, exist_ok=True)
    _mount(libc, "none", root + folder, "tmpfs", _NO_SETUID | _NO_DEVICES, f"size={disk},mode=700,nr_inodes={files}")
    shutil.copytree(folder, root + folder, dirs_exist_ok=True)
    os.makedirs(f"{root}/proc")
    try:
        _mount(libc, "proc", f"{root}/proc", "proc", _NO_SETUID | _NO_DEVICES | _NO_PROGRAMS)
    except OSError:  # parts of /proc are hidden on this machine, as in a container: the program gets an empty /proc
        _mount(libc, "none", f"{root}/proc", "tmpfs", _NO_SETUID | _NO_DEVICES | _NO_PROGRAMS)
    else:
        _hide_kernel_entries(libc, root)
    _enter_root(libc, root, folder)


def etc_files() -> dict[str, str]:
    """Return path and content of the files in `/etc` that the program gets in place of the machine's."""
    return {
        "/etc/passwd": f"user:x:{os.getuid()}:{os.getgid()}:user:/tmp:/bin/sh\n",
        "/etc/group": f"user:x:{os.getgid()}:\n",
        "/etc/hosts": "127.0.0.1 localhost\n",
    }


def _hide_kernel_entries(libc: ctypes.CDLL, root: str) -> None:
    """Hide those entries of `/proc` that describe the kernel and not processes."""
    for place in (f"{root}/proc/{name}" for name in HIDDEN):
        if os.path.isdir(place):
            _mount(libc, "none", place, "tmpfs", _READ_ONLY | _NO_SETUID | _NO_DEVICES | _NO_PROGRAMS, _EMPTY_TMPFS)
        elif os.path.exists(place):
            _mount(libc, f"{root}/dev/null", place, None, _BIND)


def _bind_read_only(libc: ctypes.CDLL, root: str, place: str) -> None:
    """Mount a path of the machine read-only at the same path in the new root; do nothing if it does not exist."""
    target = root + place
    if os.path.lexists(target) or not os.path.exists(place):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(place):
        os.symlink(os.readlink(place), target)
        _bind_read_only(libc, root, os.path.realpath(place))
        return
    if os.path.isdir(place):
        os.mkdir(target)
    else:
        Path(target).touch()
    _mount(libc, place, target, None, _BIND | _RECURSIVE)
    flags = os.statvfs(place).f_flag & (_NO_SETUID | _NO_DEVICES | _NO_PROGRAMS)  # a remount may not clear these flags
    _mount(libc, None, target, None, _BIND | _REMOUNT | _READ_ONLY | _NO_SETUID | flags)


def _make_etc(root: str) -> None:
    """Write minimal files of users and hosts: libraries need them, and those of the machine are private."""
    os.makedirs(f"{root}/etc", exist_ok=True)
    for path, text in etc_files().items():
        Path(root + path).write_text(text)


def _make_devices(libc: ctypes.CDLL, root: str) -> None:
    shared = root + SHARED_MEMORY
    os.makedirs(shared)
    _mount(libc, "none", shared, "tmpfs", _NO_SETUID | _NO_DEVICES, _SCRATCH_TMPFS)
    for name in DEVICES:
        Path(f"{root}/dev/{name}").touch()
        _mount(libc, f"/dev/{name}", f"{root}/dev/{name}", None, _BIND)
    for name, target in LINKS.items():
        os.symlink(target, f"{root}/dev/{name}")


def _enter_root(libc: ctypes.CDLL, root: str, folder: str) -> None:
    """Make the new root the root of this process and unmount the old one."""
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(f"the number of pivot_root is not known for {os.uname().machine}")
    os.chdir(root)
    if libc.syscall(number, b".", b".") != 0:
        _raise_errno("pivot_root")
    if libc.umount2(b".", _DETACH) != 0:
        _raise_errno("the old root")
    _mount(libc, None, "/", None, _BIND | _REMOUNT | _READ_ONLY | _NO_SETUID | _NO_DEVICES)
    os.chdir(folder)
    with contextlib.suppress(OSError):  # /proc may be empty
        Path("/proc/sys/user/max_user_namespaces").write_text("0")  # the program cannot create namespaces
    _mount(libc, None, "/proc", None, _BIND | _REMOUNT | _READ_ONLY | _NO_SETUID | _NO_DEVICES | _NO_PROGRAMS)


def _mount(libc: ctypes.CDLL, source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    texts = (os.fsencode(text) if text is not None else None for text in (source, target, kind))
    if libc.mount(*texts, ctypes.c_ulong(flags), data.encode() or None) != 0:
        _raise_errno(target)


def _raise_errno(what: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), what)
