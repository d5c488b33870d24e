"""The local sandbox with real child processes, isolated by bubblewrap and by themselves.

Tests that need namespaces are skipped if the kernel allows none.
"""

import asyncio
import errno
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from canvas.errors import ToolError
from providers.interfaces import Program, ProgramResult
from providers.sandboxes.local import WORK, LocalSandbox, ProgramLimits
from providers.sandboxes.produced_files import NOT_REGULAR, UNSUPPORTED_TYPE
from tests.integration.providers.conftest import isolation

AS_ROOT = os.geteuid() == 0
DEADLINE_S = 20.0
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")


@pytest.fixture
def sandbox(tmp_path: Path, bubblewrap: str) -> LocalSandbox:
    limits = ProgramLimits(seconds=DEADLINE_S, output=2000, result=4000)
    return LocalSandbox(bubblewrap=bubblewrap, work_dir=tmp_path, limits=limits, allow_root=AS_ROOT)


def run(
    target: LocalSandbox, script: str, arguments: Mapping[str, Any] | None = None, language: str = "python", **more: Any
) -> ProgramResult:
    return asyncio.run(target.run(program(script, arguments, language, **more)))


def program(
    script: str, arguments: Mapping[str, Any] | None = None, language: str = "python", timeout: float = DEADLINE_S
) -> Program:
    return Program(language, script, arguments or {}, timeout, "key")


def test_arguments_and_the_result_keep_their_types(sandbox: LocalSandbox, tmp_path: Path):
    arguments = {"a": True, "b": None, "c": [1, 2.5, "é'\"\\"], "d": {"e": {}}}

    result = run(sandbox, "print('hello')\ndef main(**given): return given", arguments)

    assert (result.value, result.has_value, result.stdout, result.stderr) == (arguments, True, "hello\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("def main(): return None", None),
        ("def main(): return (1, float('nan'))", [1, None]),
        ("async def main(): return 5", 5),
        ("import dataclasses\n@dataclasses.dataclass\nclass A:\n    n: int\ndef main(): return A(2).n", 2),
    ],
)
def test_main_may_return_any_json_value(sandbox: LocalSandbox, script: str, value: Any):
    result = run(sandbox, script)

    assert (result.has_value, result.value) == (True, value)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("def main(): raise ValueError('no')", "ValueError: no"),
        ("def main(:", "SyntaxError: invalid syntax"),
        ("x = 1", "NameError: The script does not define a function main."),
        ("def main(): return {1, 2}", "TypeError: Object of type set is not JSON serializable"),
    ],
)
def test_failed_program_reports_the_error_in_the_script(sandbox: LocalSandbox, script: str, error: str):
    result = run(sandbox, script)

    assert (result.has_value, result.exit_code) == (False, 1)
    assert result.stderr.rstrip().endswith(error)
    assert "sandbox_child" not in result.stderr


def test_printed_or_written_result_marker_is_not_read_as_the_result(sandbox: LocalSandbox):
    forging_script = (
        "import os, sys\n"
        "sys.stdout.write('__RAGFLOW_RESULT__:e30=\\n')\n"
        "for fd in range(3, 64):\n"
        "    try: os.write(fd, b'0' * 32 + b'{}')\n"
        "    except OSError: pass\n"
        "def main(): return 'honest'"
    )

    assert run(sandbox, forging_script).value == "honest"


def test_files_below_artifacts_are_collected(sandbox: LocalSandbox):
    script = (
        "import os\n"
        "os.makedirs('artifacts/d')\n"
        "open('artifacts/d/a.csv', 'w').write('1')\n"
        "open('artifacts/b.exe', 'w').write('2')\n"
        "os.symlink('/etc/passwd', 'artifacts/c.csv')\n"
        "def main(): return None"
    )

    result = run(sandbox, script)

    assert [(file.name, file.data) for file in result.files] == [("d/a.csv", b"1")]
    assert [(file.name, file.reason) for file in result.skipped] == [
        ("b.exe", UNSUPPORTED_TYPE),
        ("c.csv", NOT_REGULAR),
    ]


def test_environment_of_the_worker_is_not_passed_to_the_program(sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EASEL_SECRET", "s3cret")

    environment = run(sandbox, "import os\ndef main(): return dict(os.environ)").value

    assert "EASEL_SECRET" not in environment
    assert environment["HOME"] == environment["TMPDIR"]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("def main():\n    while True: print('x' * 1000)", "Local execution output exceeded 2000 bytes."),
        ("def main(): return 'x' * 5000", "Local execution result exceeded 4000 bytes."),
    ],
)
def test_program_with_too_much_output_is_stopped(sandbox: LocalSandbox, script: str, error: str):
    with pytest.raises(ToolError) as failed:
        run(sandbox, script)

    assert str(failed.value) == error


def test_memory_of_a_program_is_limited(sandbox: LocalSandbox):
    result = run(sandbox, "def main(): return len(bytearray(2 * 1024 ** 3))")

    assert result.stderr.rstrip().endswith("MemoryError")


def test_program_times_out_with_its_node(sandbox: LocalSandbox):
    with pytest.raises(ToolError, match=r"^Execution timed out after 0\.3 seconds$"):
        run(sandbox, "def main():\n    while True: pass", timeout=0.3)


@pytest.mark.usefixtures("is_isolated")
def test_no_process_outlives_its_program_even_one_that_left_the_group(sandbox: LocalSandbox, tmp_path: Path):
    marker = f"{tmp_path.name}-escaped"
    script = (
        "import os, subprocess, sys\n"
        "sleep = 'import time; time.sleep(600)'\n"
        f"subprocess.Popen([sys.executable, '-c', sleep, {marker!r}], start_new_session=True)\n"
        "def main(): return 1"
    )

    assert run(sandbox, script).value == 1

    deadline = time.monotonic() + DEADLINE_S
    while running_with(marker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running_with(marker)


@pytest.mark.usefixtures("is_isolated")
def test_program_that_leaves_its_session_ends_at_the_time_limit(sandbox: LocalSandbox, tmp_path: Path):
    script = (
        "import ctypes, os, time\n"
        "os.mkfifo('held')\n"
        "held = os.open('held', os.O_WRONLY)\n"
        "def main():\n"
        "    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # no signal when the parent ends\n"
        "    os.setsid()\n"
        "    os.write(held, b'!')\n"
        "    time.sleep(600)\n"
    )

    async def read_end_of_pipe() -> int:
        task = asyncio.create_task(sandbox.run(program(script, timeout=3)))
        reader = os.open(await wait_for_file(tmp_path, "held"), os.O_RDONLY | os.O_NONBLOCK)
        with pytest.raises(ToolError, match="timed out"):
            await task
        return reader

    reader = asyncio.run(read_end_of_pipe())

    with os.fdopen(reader, "rb", buffering=0) as pipe:
        assert pipe.read(1) == b"!"
        assert select.select([pipe], [], [], DEADLINE_S)[0]
        assert pipe.read(1) == b""  # the other end is closed


@pytest.mark.usefixtures("is_isolated")
def test_program_has_no_capabilities_and_cannot_kill_its_init_process(sandbox: LocalSandbox):
    script = (
        "import os, signal\n"
        "def main():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    fields = dict(line.split(':\\t', 1) for line in lines)\n"
        "    os.kill(1, signal.SIGKILL)\n"
        "    return [fields['CapPrm'].strip('0'), fields['CapEff'].strip('0'), fields['NoNewPrivs'], os.getpid() > 1]\n"
    )

    assert run(sandbox, script).value == ["", "", "1", True]


def test_cancelled_run_ends_the_program(sandbox: LocalSandbox, tmp_path: Path):
    script = "open('started', 'w').close()\nimport time\ndef main(): time.sleep(600)"

    async def cancel_run() -> None:
        task = asyncio.create_task(sandbox.run(program(script)))
        await wait_for_file(tmp_path, "started")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_run())

    assert not running_with(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("is_isolated")
def test_program_ends_when_its_worker_is_killed(tmp_path: Path, bubblewrap: str):
    worker_script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from providers.interfaces import Program\n"
        "from providers.sandboxes.local import LocalSandbox\n"
        "sandbox = LocalSandbox(bubblewrap=sys.argv[1], work_dir=Path(sys.argv[2]), allow_root=True)\n"
        "script = \"open('started', 'w').close()\\nimport time\\ndef main(): time.sleep(600)\"\n"
        "asyncio.run(sandbox.run(Program('python', script, {}, 600, 'key')))\n"
    )

    with subprocess.Popen([sys.executable, "-c", worker_script, bubblewrap, str(tmp_path)]) as worker:
        asyncio.run(wait_for_file(tmp_path, "started"))
        worker.kill()

    deadline = time.monotonic() + DEADLINE_S
    while list(working_folders(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not list(working_folders(tmp_path))


@pytest.mark.parametrize("must_isolate", [True, False])
def test_program_isolates_itself_where_bubblewrap_does_not_work(tmp_path: Path, must_isolate: bool):
    if isolation().defect:
        pytest.skip("no isolation here")
    refused = tmp_path / "bwrap"
    refused.write_text("#!/bin/sh\necho 'bwrap: Creating new namespace failed: Operation not permitted' >&2\nexit 1\n")
    refused.chmod(0o755)
    sandbox = LocalSandbox(bubblewrap=str(refused), must_isolate=must_isolate, allow_root=AS_ROOT)

    result = run(sandbox, "import os\ndef main(): return [os.getpid(), os.path.exists('/etc/shadow')]")

    assert result.value == [2, False]


ALLOCATING_SCRIPT = (
    "import os, time\n"
    "def main(number, size):\n"
    "    for _ in range(number):\n"
    "        if os.fork() == 0:\n"
    "            kept = bytearray(os.urandom(1024)) * (size // 1024)\n"
    "            time.sleep(600)\n"
    "    time.sleep(600)\n"
)
MEMORY = 200 * 1024 * 1024
TOO_MUCH = f"The program and its processes used more than {MEMORY} bytes of memory together.\n"


def without_namespaces(folder: Path) -> str:
    """Return an interpreter that starts in a namespace that allows no further namespace."""
    script = folder / "python"
    script.write_text(
        "#!/bin/sh\nexec unshare --user --map-current-user sh -c "
        f'\'echo 0 >/proc/sys/user/max_user_namespaces; exec {sys.executable} "$@"\' sh "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


@pytest.fixture(params=["with namespaces", "without namespaces"])
def small_sandbox(request: pytest.FixtureRequest, tmp_path: Path, bubblewrap: str) -> LocalSandbox:
    """Return a sandbox with little memory: isolated by bubblewrap, by itself, and not at all."""
    has_namespaces = request.param == "with namespaces"
    if bubblewrap and not has_namespaces:
        pytest.skip("bubblewrap works with namespaces only")
    request.getfixturevalue("is_isolated")
    if not has_namespaces and shutil.which("unshare") is None:
        pytest.skip("unshare is not installed here")
    return LocalSandbox(
        python=sys.executable if has_namespaces else without_namespaces(tmp_path),
        bubblewrap=bubblewrap,
        work_dir=tmp_path,
        limits=ProgramLimits(seconds=DEADLINE_S, memory=MEMORY, output=2000),
        allow_root=AS_ROOT,
        must_isolate=has_namespaces,
    )


def test_memory_of_all_processes_together_is_limited(small_sandbox: LocalSandbox, tmp_path: Path):
    result = run(small_sandbox, ALLOCATING_SCRIPT, {"number": 6, "size": MEMORY // 4})

    assert (result.has_value, result.stderr) == (False, TOO_MUCH)
    assert not list(working_folders(tmp_path))


def test_processes_that_share_their_memory_are_counted_once(small_sandbox: LocalSandbox):
    script = (
        "import os, time\n"
        "kept = bytearray(os.urandom(1024)) * (80 * 1024)\n"
        "def main():\n"
        "    children = []\n"
        "    for _ in range(4):\n"
        "        child = os.fork()\n"
        "        if child == 0:\n"
        "            time.sleep(1)\n"
        "            os._exit(0)\n"
        "        children.append(child)\n"
        "    return [os.waitpid(child, 0)[1] for child in children]\n"
    )

    assert run(small_sandbox, script).value == [0, 0, 0, 0]


def test_program_has_the_highest_oom_score(small_sandbox: LocalSandbox):
    assert run(small_sandbox, "def main(): return open('/proc/self/oom_score_adj').read()").value == "1000\n"


@pytest.mark.usefixtures("is_isolated")
def test_stopped_process_group_does_not_lift_the_memory_limit(tmp_path: Path, bubblewrap: str):
    limits = ProgramLimits(seconds=DEADLINE_S, memory=MEMORY, output=2000)
    small_sandbox = LocalSandbox(bubblewrap=bubblewrap, work_dir=tmp_path, limits=limits, allow_root=AS_ROOT)
    script = (
        "import os, signal, time\n"
        "def main(number, size):\n"
        "    has_left, left = os.pipe()\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        os.write(left, b'!')\n"
        "        time.sleep(0.2)\n"
        "        for _ in range(number):\n"
        "            if os.fork() == 0:\n"
        "                kept = bytearray(os.urandom(1024)) * (size // 1024)\n"
        "                time.sleep(600)\n"
        "        time.sleep(1)\n"
        "        os.kill(os.getppid(), signal.SIGCONT)\n"
        "        time.sleep(600)\n"
        "    os.read(has_left, 1)\n"
        "    os.kill(0, signal.SIGSTOP)\n"
        "    os.kill(0, signal.SIGCONT)\n"
        "    return 'used too much'\n"
    )

    with pytest.raises(ToolError, match="timed out"):  # the process outside of the namespace was stopped, too
        asyncio.run(small_sandbox.run(program(script, {"number": 6, "size": MEMORY // 4}, timeout=3)))


@needs_node
def test_memory_of_node_is_limited_outside_of_its_heap(small_sandbox: LocalSandbox):
    script = (
        "function main() { const kept = [];"
        " for (let n = 0; n < 150; n++) kept.push(Buffer.alloc(10 * 1024 * 1024, 1)); return kept.length }"
    )

    result = run(small_sandbox, script, language="nodejs")

    assert not result.has_value
    assert "allocation failed" in result.stderr or result.stderr == TOO_MUCH


def test_detached_process_ends_with_its_program(small_sandbox: LocalSandbox, tmp_path: Path):
    script = (
        "import os, time\n"
        "def main():\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0: time.sleep(600)\n"
        "        os._exit(0)\n"
        "    return 1\n"
    )

    assert run(small_sandbox, script).value == 1
    assert not list(working_folders(tmp_path))


def test_unneeded_system_calls_are_refused_with_and_without_namespaces(small_sandbox: LocalSandbox):
    script = (
        "import ctypes, socket\n"
        "def main():\n"
        "    try: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)\n"
        "    except OSError as error: return [error.errno, ctypes.CDLL(None).unshare(0x10000000)]\n"
    )

    assert run(small_sandbox, script).value == [errno.EAFNOSUPPORT, -1]


@pytest.mark.usefixtures("is_isolated")
def test_deleted_open_files_count_towards_the_disk_limit(tmp_path: Path, bubblewrap: str):
    limits = ProgramLimits(DEADLINE_S, disk=50_000_000)
    small_disk = LocalSandbox(bubblewrap=bubblewrap, work_dir=tmp_path, limits=limits, allow_root=AS_ROOT)
    script = (
        "import os\n"
        "def main():\n"
        "    kept = []\n"
        "    for number in range(55):\n"
        "        kept.append(open(str(number), 'wb', buffering=0))\n"
        "        os.unlink(str(number))\n"
        "        kept[-1].write(bytes(10_000_000))\n"
        "        if kept[-1].tell() < 10_000_000: raise OSError('No space left')\n"
        "    return len(kept)\n"
    )

    result = run(small_disk, script)

    assert "No space left" in result.stderr


@pytest.mark.usefixtures("is_isolated")
def test_program_has_no_network(sandbox: LocalSandbox):
    script = "import socket\ndef main(): socket.create_connection(('192.0.2.1', 9), 1)"

    assert "Network is unreachable" in run(sandbox, script).stderr


@needs_node
@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("async function main({a}) { return {a, n: NaN} }", {"a": ["é", True], "n": None}),
        ("const main = ({a}) => a[0]", "é"),
        ("module.exports = { main: () => null }", None),
    ],
)
def test_javascript_main_is_found_in_every_form(sandbox: LocalSandbox, script: str, value: Any):
    result = run(sandbox, script, {"a": ["é", True]}, "nodejs")

    assert (result.has_value, result.value, result.stderr) == (True, value, "")


@needs_node
@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("function main() {}", "Error: main() must return a value. Use null for an empty result.\n"),
        ("function main() { throw new TypeError('bad') }", "TypeError: bad\n    at main (main.cjs:1:25)\n"),
        ("let x = 1", "Error: The script does not define a function main.\n"),
    ],
)
def test_failed_javascript_reports_the_error(sandbox: LocalSandbox, script: str, error: str):
    result = run(sandbox, script, language="nodejs")

    assert (result.has_value, result.exit_code, result.stderr) == (False, 1, error)


@pytest.mark.skipif(not AS_ROOT, reason="only root can be refused as root")
def test_root_does_not_run_programs_by_default():
    with pytest.raises(ToolError, match="does not run code as root"):
        run(LocalSandbox(), "def main(): return 1")


def test_error_without_node_names_it():
    with pytest.raises(ToolError, match=r"Node\.js .* was not found"):
        run(LocalSandbox(node="no-such-node", allow_root=AS_ROOT), "function main() {}", language="nodejs")


async def wait_for_file(folder: Path, name: str) -> Path:
    """Wait for a file that a program creates in its folder; return its path."""
    async with asyncio.timeout(DEADLINE_S):
        while not (paths := [working / name for working in working_folders(folder) if (working / name).exists()]):
            await asyncio.sleep(0.01)
    return paths[0]


def working_folders(folder: Path) -> Iterator[Path]:
    """Return the working folders of the programs that run below a folder."""
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if os.readlink(link).startswith(f"{folder}/easel-code-") and os.readlink(link).endswith(f"/{WORK}"):
                yield link
        except OSError:
            continue


def running_with(text: str) -> bool:
    """Return whether any process of the machine has this text on its command line."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if int(file.parent.name) != os.getpid() and text.encode() in file.read_bytes():
                return True
        except OSError:
            continue
    return False
