"""The seccomp filter, compared with the kernel's headers where they are installed."""

import re
from pathlib import Path

import pytest

from providers.sandboxes.inside import seccomp
from providers.sandboxes.inside.seccomp import NUMBERS, REFUSED_CALLS, REFUSED_FOR_FIRST_PROCESS

HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}
_RETURN = 0x06
_JUMPS = (0x15, 0x35, 0x45)


@pytest.mark.parametrize("processor", HEADERS)
def test_system_call_numbers_match_the_kernel_headers(processor: str):
    header = next((Path(path) for path in HEADERS[processor] if Path(path).exists()), None)
    if header is None:
        pytest.skip("the kernel's headers are not installed here")
    definitions = re.finditer(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    known = {match[1]: int(match[2]) for match in definitions}
    numbers = NUMBERS[processor]
    inspected = {name: getattr(numbers, name) for name in ("clone", "clone3", "socket", "socketpair", "setpriority")}
    refused = REFUSED_CALLS | REFUSED_FOR_FIRST_PROCESS

    used = {name: pair[numbers.column] for name, pair in refused.items()} | inspected

    assert used == {name: known.get(name) for name in used}


@pytest.mark.parametrize("processor", NUMBERS)
def test_every_path_through_the_filter_ends_with_a_return(processor: str):
    program = seccomp.filter_program(NUMBERS[processor])
    instructions = [
        (int.from_bytes(program[at : at + 2], "little"), program[at + 2], program[at + 3])
        for at in range(0, len(program), 8)
    ]

    for index, (code, if_true, if_false) in enumerate(instructions):
        next_ones = [index + 1 + if_true, index + 1 + if_false] if code in _JUMPS else [index + 1]
        assert code == _RETURN or all(number < len(instructions) for number in next_ones)
    assert instructions[-1][0] == _RETURN
    assert len(instructions) < 4096  # the kernel's limit
