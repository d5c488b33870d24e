"""The SSH sandbox, against a real SSH server that runs its commands in a folder of the test."""

import asyncio
import os
import pwd
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("asyncssh")
pytest.importorskip("paramiko")

import paramiko

from canvas.errors import ToolError
from providers.address_policy import Guard
from providers.interfaces import Program, ProgramResult
from providers.sandboxes.produced_files import NOT_REGULAR, UNSUPPORTED_TYPE
from providers.sandboxes.ssh import SshSandbox, SshSettings
from providers.sandboxes.ssh_execution import command_of
from tests.integration.providers.ssh_machine import PASSWORD, USER, SshMachine

DEADLINE_S = 20.0
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshMachine]:
    with SshMachine(tmp_path_factory.mktemp("machine")) as machine:
        yield machine


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Return the machine's folder for programs, with quotes and spaces in its name."""
    folder = tmp_path / 'it\'s a "$(folder)"'
    folder.mkdir()
    return folder


def sandbox(machine: SshMachine, work: Path, **more: Any) -> SshSandbox:
    fields = {
        "host": "127.0.0.1", "port": machine.port, "username": USER, "password": PASSWORD,
        "known_hosts": machine.known_hosts(), "work_dir": str(work), "timeout": DEADLINE_S, "max_memory_mb": 2048,
    }  # fmt: skip
    return SshSandbox(SshSettings(**(fields | more)), Guard())


def program(script: str, language: str = "python", arguments: Mapping[str, Any] | None = None, **more: Any) -> Program:
    return Program(language, script, arguments or {}, more.get("timeout", DEADLINE_S), "key")


def run(given: SshSandbox, script: str, language: str = "python", arguments: Any = None, **more: Any) -> ProgramResult:
    return asyncio.run(given.run(program(script, language, arguments, **more)))


def has_ended(pid: int) -> bool:
    """Return whether a process ends within the deadline; a zombie has ended as well."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_arguments_and_the_result_keep_their_types_and_no_files_remain(machine: SshMachine, work: Path):
    passed = {"a": True, "b": None, "c": ["é'\"\\$(id)`", 1.5]}

    result = run(sandbox(machine, work), "print('hello')\ndef main(**given): return given", arguments=passed)

    assert (result.value, result.has_value, result.stdout, result.stderr) == (passed, True, "hello\n", "")
    assert list(work.iterdir()) == []


@needs_node
def test_javascript_program_runs(machine: SshMachine, work: Path):
    result = run(sandbox(machine, work), "const main = async ({a}) => ({a})", "nodejs", {"a": [1, None]})

    assert (result.value, result.stderr) == ({"a": [1, None]}, "")


def test_private_key_is_accepted_for_login(machine: SshMachine, work: Path):
    key = machine.user_key("k3y phrase")

    result = run(
        sandbox(machine, work, password=None, private_key=key, passphrase="k3y phrase"), "def main(): return 1"
    )

    assert result.value == 1


def test_failed_program_reports_the_error_in_the_script(machine: SshMachine, work: Path):
    result = run(sandbox(machine, work), "print('x')\ndef main(): raise ValueError('no')")

    assert (result.has_value, result.exit_code, result.stdout) == (False, 1, "x\n")
    assert result.stderr.endswith("ValueError: no\n")
    assert str(work) not in result.stderr


def test_files_are_fetched_and_links_are_not(machine: SshMachine, work: Path):
    script = (
        "import os\n"
        "def main():\n"
        "    os.makedirs('artifacts/d')\n"
        "    open('artifacts/d/a.csv', 'w').write('1')\n"
        "    open('artifacts/b.exe', 'w').write('2')\n"
        "    os.symlink('/etc/passwd', 'artifacts/c.csv')\n"
    )

    result = run(sandbox(machine, work), script)

    assert [(file.name, file.data) for file in result.files] == [("d/a.csv", b"1")]
    assert {file.name: file.reason for file in result.skipped} == {"b.exe": UNSUPPORTED_TYPE, "c.csv": NOT_REGULAR}


def test_environment_of_the_machine_is_not_passed_to_the_program(
    machine: SshMachine, work: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MACHINE_SECRET", "s3cret")

    found = run(sandbox(machine, work), "import os\ndef main(): return dict(os.environ)").value

    assert "MACHINE_SECRET" not in found
    assert found["HOME"].startswith(f"{work}/ragflow-codeexec.")


def test_unknown_host_key_is_refused_before_the_password_is_sent(machine: SshMachine, work: Path):
    with pytest.raises(ToolError, match="is not in known_hosts"):
        run(sandbox(machine, work, known_hosts=None), "def main(): return 1")


def test_host_key_that_does_not_match_is_refused(machine: SshMachine, work: Path):
    other = machine.known_hosts(key=paramiko.ECDSAKey.generate())

    with pytest.raises(ToolError, match="does not match"):
        run(sandbox(machine, work, known_hosts=other), "def main(): return 1")


def test_host_key_is_looked_up_by_name_and_the_resolved_address_is_connected(machine: SshMachine, work: Path):
    async def resolve(host: str, port: int) -> list[str]:
        assert host == "runner.example.com"
        return ["127.0.0.1"]

    ssh_settings = SshSettings(
        host="runner.example.com", port=machine.port, username=USER, password=PASSWORD,  # pyright: ignore[reportArgumentType]
        known_hosts=machine.known_hosts("runner.example.com"), work_dir=str(work),
    )  # fmt: skip

    result = run(SshSandbox(ssh_settings, Guard(), resolve=resolve), "def main(): return 1")

    assert (result.value, result.stderr) == (1, "")


def test_error_for_a_wrong_password_does_not_contain_it(machine: SshMachine, work: Path):
    with pytest.raises(ToolError, match=r"^Provider system execution failed: Authentication failed") as failed:
        run(sandbox(machine, work, password="wr0ng"), "def main(): return 1")

    assert "wr0ng" not in str(failed.value)


def test_program_with_endless_output_is_stopped(machine: SshMachine, work: Path):
    with pytest.raises(ToolError, match=r"^The program's output exceeded 1048576 bytes\.$"):
        run(sandbox(machine, work), "def main():\n    while True: print('x' * 10000)")

    assert list(work.iterdir()) == []


def test_program_that_times_out_is_killed_with_its_children(machine: SshMachine, work: Path):
    pids = work.parent / "pids"
    script = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "def main():\n    while True: pass"
    )

    with pytest.raises(ToolError, match=r"^Execution timed out after 2 seconds$"):
        run(sandbox(machine, work), script, timeout=2)

    assert all(has_ended(int(pid)) for pid in pids.read_text().split())
    assert list(work.iterdir()) == []


def test_background_process_does_not_delay_the_result_and_is_killed(machine: SshMachine, work: Path):
    script = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "def main(): return child.pid"
    )

    started = time.monotonic()
    pid = run(sandbox(machine, work), script, timeout=200).value

    assert time.monotonic() - started < 100
    assert has_ended(pid)


def test_cancelled_run_ends_the_program(machine: SshMachine, work: Path):
    pids = work.parent / "pids"
    script = f"import os, time\nopen({str(pids)!r}, 'w').write(str(os.getpid()))\ndef main(): time.sleep(600)"

    async def cancel_run() -> None:
        task = asyncio.create_task(sandbox(machine, work).run(program(script)))
        async with asyncio.timeout(DEADLINE_S):
            while not pids.exists() or not pids.read_text():
                await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_run())

    assert has_ended(int(pids.read_text()))
    deadline = time.monotonic() + DEADLINE_S
    while list(work.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(work.iterdir()) == []


@settings(max_examples=40, deadline=None)
@given(
    st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1, max_size=30),
    st.sampled_from(["python", "nodejs"]),
)
def test_path_cannot_start_another_command(name: str, language: str):
    ssh_settings = SshSettings(host="h", username="u", password="p", python_bin=name, node_bin=name)  # pyright: ignore[reportArgumentType]

    command = command_of(ssh_settings, language, f"/tmp/{name}")

    outside = shlex.split(command.replace("2>/dev/null", "").replace("</dev/null", ""))
    assert outside[:2] == ["cd", f"/tmp/{name}"]
    assert outside[outside.index("PYTHONUNBUFFERED=1") + 1] == name
    assert f"HOME=/tmp/{name}" in outside


def test_shell_reads_a_quoted_path_unchanged(tmp_path: Path):
    name = "a b'c\"d$(touch e)`touch f`;touch g\n*"
    folder = tmp_path / name
    folder.mkdir()
    ssh_settings = SshSettings(host="h", username="u", password="p", python_bin="/bin/echo")  # pyright: ignore[reportArgumentType]

    command = command_of(ssh_settings, "python", str(folder)).replace("/bin/echo program.py", "/bin/pwd")
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout == f"{folder}\n"
    assert os.listdir(tmp_path) == [name]


# -- OpenSSH, where it is installed ----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def openssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Start a real sshd for this module, which runs as a user that may log in; return the settings for it."""
    server, keygen = shutil.which("sshd", path=f"{os.environ.get('PATH')}:/usr/sbin"), shutil.which("ssh-keygen")
    if server is None or keygen is None:
        pytest.skip("there is no sshd here")
    user = next((each for each in pwd.getpwall() if can_log_in(each)), None)
    if user is None:
        pytest.skip("no user but root may log in here")
    folder = Path(tempfile.mkdtemp(prefix="easel-sshd-"))  # a folder that another user can reach
    for name in ("host", "user"):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "work").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/user.pub\nPasswordAuthentication no\nSubsystem sftp internal-sftp\n"
    )
    private, (kind, key, *_) = (folder / "user").read_text(), (folder / "host.pub").read_text().split()
    if os.geteuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
    drop = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    process = subprocess.Popen(
        [server, "-D", "-e", "-f", folder / "config"], stderr=subprocess.DEVNULL, cwd=folder, **drop
    )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not listens(port) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield {
            "port": port, "username": user.pw_name, "password": None, "private_key": private,
            "known_hosts": f"[127.0.0.1]:{port} {kind} {key}", "work_dir": str(folder / "work"),
        }  # fmt: skip
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
        shutil.rmtree(folder)


def can_log_in(user: pwd.struct_passwd) -> bool:
    """Return whether sshd may run as this user; as root it would need a system folder."""
    return user.pw_uid == (os.geteuid() or user.pw_uid) != 0 and Path(user.pw_shell).name in (
        "sh",
        "bash",
        "dash",
        "zsh",
    )


def listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def test_openssh_runs_programs_and_leaves_no_files(machine: SshMachine, work: Path, openssh: dict[str, Any]):
    result = run(sandbox(machine, work, **openssh), "def main(a): return [a, 1]", arguments={"a": "é'"})

    assert (result.value, result.stdout, result.stderr) == (["é'", 1], "", "")
    assert list(Path(openssh["work_dir"]).iterdir()) == []


def test_openssh_kills_a_program_that_times_out_with_its_children(
    machine: SshMachine, work: Path, openssh: dict[str, Any]
):
    mark = f"6{work.stat().st_ino}"
    script = f"import subprocess\nsubprocess.Popen(['sleep', {mark!r}])\ndef main():\n    while True: pass"

    with pytest.raises(ToolError, match="timed out"):
        run(sandbox(machine, work, **openssh), script, timeout=2)

    deadline = time.monotonic() + DEADLINE_S
    while (running := processes_with(mark)) and time.monotonic() < deadline:  # a killed process takes a moment to end
        time.sleep(0.02)
    assert running == []
    assert list(Path(openssh["work_dir"]).iterdir()) == []


def processes_with(mark: str) -> list[Path]:
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in text_of(path)]


def text_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
