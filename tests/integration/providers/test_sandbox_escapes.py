"""Malicious programs in the local sandbox: none reads, changes or reaches anything outside of it.

A program returns what it could read; it should get `None` or an error. Programs are isolated by bubblewrap and by
themselves. The tests are skipped on a machine whose kernel cannot isolate programs.
"""

import asyncio
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from canvas.errors import ToolError
from components.tools.code.output_contract import to_json_value
from providers.interfaces import Program, ProgramResult
from providers.sandboxes.local import LocalSandbox, ProgramLimits

AS_ROOT = os.geteuid() == 0
DEADLINE_S = 20.0
SECRET = "s3cret-of-the-worker"
LIMITS = ProgramLimits(
    seconds=DEADLINE_S, output=100_000, result=100_000, disk=20_000_000, files=300, memory=300_000_000
)
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")


pytestmark = pytest.mark.usefixtures("is_isolated")


@pytest.fixture
def sandbox(tmp_path: Path, bubblewrap: str, monkeypatch: pytest.MonkeyPatch) -> LocalSandbox:
    monkeypatch.setenv("EASEL_SECRET_KEY", SECRET)
    return LocalSandbox(bubblewrap=bubblewrap, work_dir=tmp_path, limits=LIMITS, must_isolate=True, allow_root=AS_ROOT)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def program(script: str, language: str = "python", timeout: float = DEADLINE_S, **arguments: Any) -> Program:
    return Program(language, script, arguments, timeout, "key")


def run(target: LocalSandbox, script: str, language: str = "python", **more: Any) -> ProgramResult:
    return asyncio.run(target.run(program(script, language, **more)))


def make_attempts(bodies: Mapping[str, str], parameters: str) -> str:
    """Return a program that runs each body and returns its result, or `None` if the body raised an error."""
    functions = "".join(
        f"def try{number}({parameters}):\n    {body}\n\n" for number, body in enumerate(bodies.values())
    )
    return (
        f"{functions}def main({parameters}):\n"
        f"    found = {{}}\n"
        f"    for number, name in enumerate({list(bodies)!r}):\n"
        f"        try: found[name] = globals()[f'try{{number}}']({parameters})\n"
        f"        except (OSError, AssertionError, ValueError): found[name] = None\n"
        f"    return found\n"
    )


READS = {
    "the machine's passwords": "return open('/etc/shadow').read()",
    "the machine's users": "text = open('/etc/passwd').read()\n    return text if 'daemon' in text else None",
    "the worker's environment by its number": "return open(f'/proc/{parent}/environ').read()",
    "the worker's memory by its number": "return open(f'/proc/{parent}/mem', 'rb').read(1).hex()",
    "the first process's environment": "return open('/proc/1/environ').read()",
    "the first process's root": "import os\n    return os.listdir('/proc/1/root')",
    "the environment of all processes": (
        "import glob\n"
        "    found = []\n"
        "    for name in glob.glob('/proc/*/environ'):\n"
        "        try: found += [name] if secret in open(name).read() else []\n"
        "        except OSError: pass\n"
        "    return found or None"
    ),
    "this project": "return open(project + '/pyproject.toml').read()",
    "homes": "import os\n    return [name for name in os.listdir('/root') if name != '.pyenv'] or None",
    "other programs' folders": (
        "import os\n"
        "    found = [name for name in os.listdir('/tmp') if name not in os.getcwd().split('/')]\n"
        "    return [name for name in found if name not in project.split('/')] or None"
    ),
    "the machine's disks": "import glob\n    return glob.glob('/dev/[svx]d*') + glob.glob('/dev/nvme*') or None",
    "raw memory": "return open('/dev/mem', 'rb').read(1).hex()",
    "the kernel's symbols": "return open('/proc/kallsyms').read() or None",
    "the kernel's configuration": "return open('/proc/config.gz', 'rb').read().hex() or None",
    "the kernel's keys": "return (open('/proc/keys').read() + open('/proc/key-users').read()) or None",
    "the kernel's memory": "return open('/proc/kcore', 'rb').read(1).hex() or None",
    "the kernel's modules": "return open('/proc/modules').read() or None",
    "the kernel's timers": "return open('/proc/timer_list').read() or None",
    "the kernel's messages": "return open('/dev/kmsg').readline()",
}


def test_program_cannot_read_files_outside_its_sandbox(sandbox: LocalSandbox):
    project = str(Path(__file__).resolve().parents[3])

    result = run(
        sandbox, make_attempts(READS, "parent, secret, project"), parent=os.getpid(), secret=SECRET, project=project
    )

    assert result.value == dict.fromkeys(READS), result.stderr


CALL = "import ctypes, os\n    assert ctypes.CDLL(None).syscall"
CHANGES = {
    "the system": "open('/usr/bin/easel-was-here', 'w')",
    "the interpreter": "import sys\n    open(sys.prefix + '/easel-was-here', 'w')",
    "the kernel's settings": "open('/proc/sys/kernel/core_pattern', 'w').write('|/bin/sh')",
    "the machine by a key": "open('/proc/sysrq-trigger', 'w').write('b')",
    "its own mounts": "import ctypes\n    assert ctypes.CDLL(None).umount2(b'/proc', 2) == 0",
    "a mount made writable": (
        "import ctypes\n    assert ctypes.CDLL(None).mount(None, b'/usr', None, 0x1020, None) == 0"
    ),
    "another user namespace": "import ctypes\n    assert ctypes.CDLL(None).unshare(0x10000000) == 0",
    "its user": "import os\n    os.setuid(1)",
    "its limits": "import resource\n    resource.setrlimit(resource.RLIMIT_NPROC, (9999, 9999))",
    "the limits of the first process": "import resource\n    resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))",
    "the priority of the first process": "import os\n    os.setpriority(os.PRIO_PROCESS, 1, 19)",
    "the priority of its group": "import os\n    os.setpriority(os.PRIO_PGRP, 0, 19)",
    "the priority of its user": "import os\n    os.setpriority(os.PRIO_USER, 0, 19)",
    "the scheduling of the first process": (
        "import os\n    os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))"
    ),
    "the processors of the first process": "import os\n    os.sched_setaffinity(1, {0})",
    "the first process": (
        "import ctypes\n    assert ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0"  # PTRACE_ATTACH
    ),
    "a device of its own": "import os\n    os.mknod('disk', 0o60666, os.makedev(8, 0))",
    "its root by a way out": (
        "import os\n    os.chroot('artifacts')\n    for _ in range(50): os.chdir('..')\n    os.chroot('.')"
    ),
    "the clock": "import time\n    time.clock_settime(time.CLOCK_REALTIME, 0)",
    "the kernel by io_uring": f"{CALL}(425, 8, bytes(120)) >= 0",
    "the kernel by BPF": f"{CALL}(321, 5, bytes(120), 120) >= 0",
    "the kernel by its keys": f"{CALL}({{'x86_64': 250, 'aarch64': 219}}[os.uname().machine], 0, -3, 1) >= 0",
    "the kernel by userfaultfd": f"{CALL}({{'x86_64': 323, 'aarch64': 282}}[os.uname().machine], 1) >= 0",
    "the kernel by its counters": (
        f"{CALL}({{'x86_64': 298, 'aarch64': 241}}[os.uname().machine], bytes(128), 0, -1, -1, 0) >= 0"
    ),
    "another namespace by clone": f"{CALL}({{'x86_64': 56, 'aarch64': 220}}[os.uname().machine], 0x10000011, 0) >= 0",
    "a process that it traces": (
        "import ctypes, os, time\n"
        "    if (child := os.fork()) == 0: time.sleep(9)\n"
        "    try: assert ctypes.CDLL(None).ptrace(16, child, 0, 0) == 0\n"
        "    finally: os.kill(child, 9)"
    ),
    "the machine's name": "import socket\n    socket.sethostname('x')",
}


def test_program_cannot_change_the_system(sandbox: LocalSandbox):
    bodies = {name: f"{body}\n    return 'changed'" for name, body in CHANGES.items()}

    result = run(sandbox, make_attempts(bodies, ""))

    assert result.value == dict.fromkeys(CHANGES), result.stderr


SIGNALS = {
    "its parent": "os.kill(os.getppid(), 9)",
    "the worker by its number": "os.kill(parent, 9)",
    "the worker's group": "os.killpg(group, 9)",
    "all processes but itself": "os.kill(-1, 9)",
}


@pytest.mark.parametrize("body", SIGNALS.values(), ids=SIGNALS)
def test_program_cannot_signal_processes_outside_its_sandbox(sandbox: LocalSandbox, body: str):
    script = f"import os\ndef main(parent, group):\n    try: {body}\n    except OSError: pass\n    return 'alive'"

    assert run(sandbox, script, parent=os.getpid(), group=os.getpgid(0)).value == "alive"


CALLS = {
    "the worker's own machine": "socket.create_connection(('127.0.0.1', port), 2)",
    "the machine by its name": "socket.create_connection(('localhost', port), 2)",
    "the clouds' settings": "socket.create_connection(('169.254.169.254', 80), 2)",
    "a name server": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('1.1.1.1', 53))",
    "a raw network": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "the hypervisor": "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
    "the kernel by netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "the kernel's ciphers": "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
    "a daemon's socket": "socket.socket(socket.AF_UNIX).connect('/var/run/docker.sock')",
}


def test_program_cannot_open_network_connections(sandbox: LocalSandbox, listener: socket.socket):
    bodies = {name: f"import socket\n    {body}\n    return 'called'" for name, body in CALLS.items()}

    result = run(sandbox, make_attempts(bodies, "port"), port=listener.getsockname()[1])

    assert result.value == dict.fromkeys(CALLS), result.stderr


def test_abstract_unix_socket_of_the_host_is_unreachable(sandbox: LocalSandbox):
    name = f"\0easel-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(name)
        listening.listen()

        result = run(sandbox, "import socket\ndef main(name): socket.socket(socket.AF_UNIX).connect(name)", name=name)

    assert "ConnectionRefusedError" in result.stderr


BOMBS = {
    "of memory": ("def main():\n    kept = []\n    while True: kept.append(bytearray(10_000_000))", "MemoryError"),
    "of recursion": ("def main(): return main()", "RecursionError"),
    "of open files": (
        "def main():\n    kept = []\n    while True: kept.append(open('/dev/null'))",
        "Too many open files",
    ),
    "of threads": (
        "import threading, time\n"
        "def main():\n    while True: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()",
        "can't start new thread",
    ),
    "of a large file": (
        "def main():\n    with open('f', 'wb') as file:\n        file.seek(10**12)\n        file.write(b'0')",
        "File too large",
    ),
    "of files that are large together": (
        "def main():\n    n = 0\n    while n := n + 1: open(str(n % 200), 'wb').write(b'0' * 1_000_000)",
        "No space left",
    ),
    "of many files": (
        "def main():\n    for n in range(10**9): open(str(n), 'w').close()",
        "No space left|left more than 300 files in its folder",  # without bubblewrap, and with it
    ),
    "of many deleted files": (
        "import os\n"
        "def main():\n"
        "    for n in range(8):\n"
        "        if os.fork() == 0: break\n"
        "    kept = []\n"
        "    for n in range(50):\n"
        "        kept.append(os.open(str(os.getpid()), os.O_CREAT))\n"
        "        os.unlink(str(os.getpid()))\n"
        "    import time; time.sleep(2)",
        "No space left|left more than 300 files in its folder",
    ),
    "of many files in a folder that moved": (
        "import os\n"
        "def main():\n"
        "    above = os.path.dirname(os.getcwd())\n"
        "    if above.startswith('/tmp/'):\n"
        "        top = '/tmp/' + above.split('/')[2]\n"
        "        os.rename(top, '/tmp/moved')\n"
        "        os.makedirs(above + '/work')\n"
        "    for n in range(10**9): open(str(n), 'w').close()",
        "No space left|left more than 300 files in its folder",
    ),
    "of many files in /tmp": (
        "def main():\n    for n in range(10**9): open(f'/tmp/{n}', 'w').close()",
        "No space left|left more than 2000 files in /tmp",
    ),
    "of many files in the memory disk": (
        "def main():\n    for n in range(10**9): open(f'/dev/shm/{n}', 'w').close()",
        "No space left|left more than 2000 files in /dev/shm",
    ),
    "of a full memory disk": (
        "def main():\n    with open('/dev/shm/f', 'wb') as file:\n        while True: file.write(b'0' * 1_000_000)",
        "No space left",
    ),
    "of a full /tmp": (
        "def main():\n    with open('/tmp/f', 'wb') as file:\n        while True: file.write(b'0' * 1_000_000)",
        "No space left",
    ),
    "of output": ("def main():\n    while True: print('x' * 9999)", "output exceeded 100000 bytes"),
    "of binary output": (
        "import os\ndef main():\n    while True: os.write(2, os.urandom(9999))",
        "output exceeded 100000 bytes",
    ),
    "of a result": ("def main(): return 'x' * 10**7", "result exceeded 100000 bytes"),
    "of a deep result": ("def main():\n    x = []\n    for _ in range(10**6): x = [x]\n    return x", "RecursionError"),
    "of digits": ("def main(): return 10 ** 5000", "4300"),
    "of complaints": ("def main(): raise ValueError('x' * 10**7)", "output exceeded 100000 bytes"),
}


@pytest.mark.parametrize(("script", "error"), BOMBS.values(), ids=BOMBS)
def test_resource_bomb_is_stopped_by_its_limit(sandbox: LocalSandbox, script: str, error: str):
    try:
        text = run(sandbox, script).stderr
    except ToolError as failure:
        text = failure.message

    assert re.search(error, text)


def test_fork_bomb_is_killed_when_its_program_times_out(sandbox: LocalSandbox, tmp_path: Path):
    script = (
        "import os, time\n"
        "def main():\n"
        "    while True:\n"
        "        try: os.fork()\n"
        "        except OSError: time.sleep(0.01)\n"
    )

    with pytest.raises(ToolError, match="timed out"):
        run(sandbox, script, timeout=1.5)

    assert no_process_is_left_in(tmp_path)


HIDDEN_PROCESSES = {
    "a double fork": (
        "if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0: time.sleep(600)\n        os._exit(0)"
    ),
    "a session of its own": "if os.fork() == 0:\n        os.setsid()\n        time.sleep(600)",
    "ignoring signals": (
        "if os.fork() == 0:\n"
        "        for number in range(1, 32):\n"
        "            try: signal.signal(number, signal.SIG_IGN)\n"
        "            except (OSError, ValueError): pass\n"
        "        time.sleep(600)"
    ),
    "with nothing open": "if os.fork() == 0:\n        os.closerange(0, 64)\n        time.sleep(600)",
    "stopped": "if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)",
}


@pytest.mark.parametrize("body", HIDDEN_PROCESSES.values(), ids=HIDDEN_PROCESSES)
def test_hidden_child_processes_end_with_their_program(sandbox: LocalSandbox, tmp_path: Path, body: str):
    result = run(sandbox, f"import os, signal, time\ndef main():\n    {body}\n    return 1")

    assert result.value == 1
    assert no_process_is_left_in(tmp_path)


ENDLESS_PROGRAMS = {
    "sleeping": "import time\ndef main(): time.sleep(600)",
    "after its output is closed": "import os, time\ndef main():\n    os.close(1); os.close(2)\n    time.sleep(600)",
    "stopped": "import os, signal\ndef main(): os.kill(os.getpid(), signal.SIGSTOP)",
    "as it is loaded": "while True: pass",
    "behind its end": ("import atexit, signal, time\natexit.register(time.sleep, 600)\ndef main(): signal.pause()"),
    "in a thread": "import threading\ndef main(): threading.Event().wait()",
}


@pytest.mark.parametrize("script", ENDLESS_PROGRAMS.values(), ids=ENDLESS_PROGRAMS)
def test_program_that_does_not_end_times_out(sandbox: LocalSandbox, tmp_path: Path, script: str):
    with pytest.raises(ToolError, match=r"^Execution timed out after 1 seconds$"):
        run(sandbox, script, timeout=1)

    assert no_process_is_left_in(tmp_path)


FORGERIES = {
    "a plain mark": "print('__RAGFLOW_RESULT__:eyJwcmVzZW50IjogdHJ1ZSwgInZhbHVlIjogMX0=')",
    "a mark of another run": "print('__RAGFLOW_RESULT__' + '0' * 32 + ':eyJwcmVzZW50IjogdHJ1ZSwgInZhbHVlIjogMX0=')",
    "into every descriptor": (
        "import os\n"
        "    for number in range(3, 64):\n"
        "        try: os.write(number, b'0' * 32 + b'1')\n"
        "        except OSError: pass"
    ),
    "binary rubbish": "import os\n    os.write(1, bytes(range(256)) * 9)",
    "half a letter": "import os\n    os.write(1, b'\\xc3')",
}


@pytest.mark.parametrize("body", FORGERIES.values(), ids=FORGERIES)
def test_printed_result_marker_is_not_read_as_the_result(sandbox: LocalSandbox, body: str):
    assert run(sandbox, f"def main():\n    {body}\n    return 'honest'").value == "honest"


def test_links_and_special_files_in_artifacts_are_skipped(sandbox: LocalSandbox, tmp_path: Path):
    script = (
        "import os\n"
        "def main():\n"
        "    os.symlink('/etc/passwd', 'artifacts/a.csv')\n"
        "    os.symlink('/proc/self/environ', 'artifacts/b.csv')\n"
        "    os.symlink('..', 'artifacts/up')\n"
        "    os.mkfifo('artifacts/pipe.csv')\n"
        "    open('../out.csv', 'w').write('x') if os.access('..', os.W_OK) else None\n"
        "    open('artifacts/\\n..\\\\..\\\\d.csv', 'w').write('x')\n"
        "    os.mkdir('artifacts/shut'); open('artifacts/shut/e.csv', 'w').close(); os.chmod('artifacts/shut', 0)\n"
    )

    result = run(sandbox, script)

    assert result.has_value, result.stderr
    assert all(file.data in (b"x", b"") for file in result.files)
    assert {"a.csv", "b.csv", "pipe.csv"} <= {file.name for file in result.skipped}
    assert list(tmp_path.iterdir()) == []


def test_artifacts_folder_replaced_by_a_link_returns_no_files(sandbox: LocalSandbox):
    script = "import os\ndef main():\n    os.rmdir('artifacts'); os.symlink('/etc', 'artifacts')"

    result = run(sandbox, script)

    assert (result.has_value, result.files, result.skipped) == (True, [], [])


def test_huge_arguments_are_passed_unchanged(sandbox: LocalSandbox):
    value = {"text": "é\x00\"'\\\n" * 300_000, "deep": [[[[1]]]]}

    result = run(sandbox, "def main(value): return [len(value['text']), value['deep']]", value=value)

    assert result.value == [len(value["text"]), [[[[1]]]]]


def test_deeply_nested_result_is_an_error(sandbox: LocalSandbox):
    script = (
        "import sys\n"
        "around = sys.modules['__main__']\n"
        "write = around._write\n"
        "around._write = lambda target, data: write(target, data[:32] + b'[' * 40_000)\n"
        "def main(): return 1"
    )

    with pytest.raises(ToolError, match=r"cannot be read|nested"):
        to_json_value(run(sandbox, script).value)


JAVASCRIPT = {
    "process.binding": ("return process.binding('spawn_sync') && 'got'", None),
    "the worker's environment": ("return require('fs').readFileSync(`/proc/${parent}/environ`, 'utf8')", None),
    "the machine's passwords": ("return require('fs').readFileSync('/etc/shadow', 'utf8')", None),
    "a program of the machine": (
        "return require('child_process').execSync('cat /etc/shadow', {stdio: 'pipe'}).toString()",
        None,
    ),
    "a connection": (
        "const {connect} = require('net');"
        " return new Promise((yes, no) => connect(port, '127.0.0.1', () => yes('called')).on('error', no))",
        None,
    ),
    "a signal to the worker": ("process.kill(parent, 9); return 'sent'", None),
    "a worker thread's files": (
        "return new Promise((yes, no) => { const {Worker} = require('worker_threads');"
        " const code = \"require('worker_threads').parentPort.postMessage(require('fs').readFileSync('/etc/shadow'))\";"
        " new Worker(code, {eval: true}).on('message', yes).on('error', no) })",
        None,
    ),
    "prototype pollution": ("Object.prototype.polluted = 'yes'; return {a: 1}", {"a": 1}),
    "a changed JSON": ("JSON.parse = () => 0; return {a: 1}", {"a": 1}),
}


@needs_node
@pytest.mark.parametrize(("body", "value"), JAVASCRIPT.values(), ids=JAVASCRIPT)
def test_javascript_cannot_escape_the_sandbox(sandbox: LocalSandbox, listener: socket.socket, body: str, value: Any):
    port = listener.getsockname()[1]

    result = run(
        sandbox, f"async function main({{parent, port}}) {{ {body} }}", "nodejs", parent=os.getpid(), port=port
    )

    assert result.value in (value, "got")  # the binding exists, and is isolated in the same way
    assert threading.main_thread().is_alive()


@needs_node
@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("function main() { const a = []; for (;;) a.push(new Array(1e6).fill(1.5)) }", "out of memory"),
        ("function main() { for (;;) require('fs').writeSync(1, 'x'.repeat(9999)) }", "output exceeded"),
        (
            "function main() { for (let n = 0; ; n++) require('fs').writeFileSync(String(n), '') }",
            "no space left|left more than 300 files",
        ),
        ("function main() { return main() }", "Maximum call stack"),
        (
            "process.exit = () => {}; function main() { setInterval(() => {}, 1); return new Promise(() => {}) }",
            "timed out",
        ),
        ("function main() { for (;;); }", "timed out"),
    ],
)
def test_javascript_resource_bomb_is_stopped_by_its_limit(sandbox: LocalSandbox, script: str, error: str):
    try:
        text = run(sandbox, script, "nodejs", timeout=1.5 if error == "timed out" else DEADLINE_S).stderr
    except ToolError as failure:
        text = failure.message

    assert re.search(error, text)


def no_process_is_left_in(folder: Path) -> bool:
    """Return whether every process in a folder below ends within the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if not any(str(folder) in working_folder for working_folder in working_folders()):
            return True
        time.sleep(0.02)
    return False


def working_folders() -> Iterator[str]:
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            yield os.readlink(link)
        except OSError:
            continue
