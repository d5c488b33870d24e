"""A seccomp filter, written as a BPF program, that refuses certain system calls of programs in the local sandbox.

    install_filter()   ->  True; False if the kernel or the processor does not support the filter

The filter is a list of refused calls; all others are allowed. It refuses calls that reach internals of the kernel
(modules, BPF, io_uring, keys, performance counters, userfaultfd), memory of other processes (ptrace and similar),
mounts and namespaces, clocks and the host name, and the limits and the priority of process 1, which watches the program
if bubblewrap isolates it. It also refuses sockets of all families except Unix and Internet,
because a network namespace does not confine AF_VSOCK, AF_NETLINK and others, or because they reach the kernel.
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

_X86_64, _AARCH64 = "x86_64", "aarch64"

REFUSED_CALLS: Mapping[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_kernel_syms": (177, None),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "query_module": (178, None),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
}
"""The refused calls, with their numbers on x86_64 and aarch64."""

REFUSED_FOR_FIRST_PROCESS: Mapping[str, tuple[int, int]] = {
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
}
"""The calls that are refused if their first argument is process 1: the kernel allows them to processes of its user."""


@dataclass(frozen=True)  # no slots: the module is loaded by its path
class ArchitectureNumbers:
    """The numbers of one processor architecture: its id in a filter, and the calls whose arguments are checked."""

    arch: int
    clone: int
    clone3: int
    socket: int
    socketpair: int
    setpriority: int
    column: int  # of CALLS


NUMBERS: Mapping[str, ArchitectureNumbers] = {
    _X86_64: ArchitectureNumbers(0xC000003E, clone=56, clone3=435, socket=41, socketpair=53, setpriority=141, column=0),
    _AARCH64: ArchitectureNumbers(
        0xC00000B7, clone=220, clone3=435, socket=198, socketpair=199, setpriority=140, column=1
    ),
}
ALLOWED_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
# offsets in the filter's input; the lower half of an argument comes first
_NUMBER, _ARCH, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_X32 = 0x40000000  # first number of the x32 call table, which a 64-bit kernel may have
_PRIO_PROCESS, _FIRST_PROCESS = 0, 1
_NEW_NAMESPACES = 0x7E020000  # flags of clone


def install_filter() -> bool:
    """Install the filter for this process and all its later children, permanently; return False if not possible."""
    numbers = NUMBERS.get(os.uname().machine)
    if sys.platform != "linux" or numbers is None:
        return False
    program = filter_program(numbers)
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(program, len(program))
    filter_ = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, filter_, 0, 0) == 0


def filter_program(numbers: ArchitectureNumbers) -> bytes:
    """Return the instructions of the filter. Each jump skips the next instruction, or a few."""
    refused = [pair[numbers.column] for pair in REFUSED_CALLS.values()]
    return b"".join(
        chain(
            [_instruction(_LOAD, _ARCH), _instruction(_IF_EQUAL, numbers.arch, 1, 0), _instruction(_RETURN, _KILL)],
            [_instruction(_LOAD, _NUMBER), _instruction(_IF_AT_LEAST, _X32, 0, 1), _refuse_with(errno.ENOSYS)],
            *(_if_called(number, _refuse_with(errno.EPERM)) for number in refused if number is not None),
            # a filter cannot read its flags; libc falls back to clone
            _if_called(numbers.clone3, _refuse_with(errno.ENOSYS)),
            _if_called(
                numbers.clone,
                _instruction(_LOAD, _FIRST_ARGUMENT),
                _instruction(_IF_ANY_BIT, _NEW_NAMESPACES, 0, 1),
                _refuse_with(errno.EPERM),
                _instruction(_RETURN, _ALLOW),
            ),
            *(_if_called(number, *_check_family()) for number in (numbers.socket, numbers.socketpair)),
            *(
                _if_called(pair[numbers.column], *_check_process(_FIRST_ARGUMENT))
                for pair in REFUSED_FOR_FIRST_PROCESS.values()
            ),
            _if_called(
                numbers.setpriority,
                _instruction(_LOAD, _FIRST_ARGUMENT),
                _instruction(_IF_EQUAL, _PRIO_PROCESS, 1, 0),
                _refuse_with(errno.EPERM),  # a group or a user, which process 1 belongs to
                *_check_process(_SECOND_ARGUMENT),
            ),
            [_instruction(_RETURN, _ALLOW)],
        )
    )


def _check_family() -> list[bytes]:
    last = len(ALLOWED_FAMILIES) - 1
    checks = [_instruction(_IF_EQUAL, family, last - place + 1, 0) for place, family in enumerate(ALLOWED_FAMILIES)]
    return [
        _instruction(_LOAD, _FIRST_ARGUMENT),
        *checks,
        _refuse_with(errno.EAFNOSUPPORT),
        _instruction(_RETURN, _ALLOW),
    ]


def _check_process(argument: int) -> list[bytes]:
    return [
        _instruction(_LOAD, argument),
        _instruction(_IF_EQUAL, _FIRST_PROCESS, 0, 1),
        _refuse_with(errno.EPERM),
        _instruction(_RETURN, _ALLOW),
    ]


def _if_called(number: int, *instructions: bytes) -> list[bytes]:
    """Return instructions that run for one call only and end with a return; other calls skip them."""
    return [_instruction(_IF_EQUAL, number, 0, len(instructions)), *instructions]


def _refuse_with(reason: int) -> bytes:
    return _instruction(_RETURN, _REFUSE | reason)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("@HBBI", code, if_true, if_false, value)
