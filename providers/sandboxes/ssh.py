"""A sandbox on another machine over SSH. Each program has a folder, which is removed when the program is done.

The program runs as the user of the account in a process group of its own, with an empty environment and the limits of
the shell. The group is killed when the program has ended, has timed out or was cancelled. The program may do whatever
the user of the account may do: the machine is the boundary. Implements `providers.interfaces.Sandbox`.

The connection goes to an address that was checked here, and the host's key must be known under the host's own name.
"""

import asyncio
import importlib
import io
import os
import re
import secrets
import select
import socket
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from shlex import quote
from typing import Any

from pydantic import Field, SecretStr, model_validator

from canvas.errors import ToolError
from providers import address_policy
from providers.address_policy import Guard, Resolve, resolve_checked
from providers.interfaces import ProducedFile, Program, ProgramResult, SkippedFile
from providers.sandboxes import produced_files
from providers.sandboxes.remote_program import RemoteOutput, RemoteProgram
from providers.sandboxes.settings import SandboxSettings

STEP_TIMEOUT = 10.0  # for connecting, and for each step around a program
DRAIN_TIMEOUT = 0.5  # for the last output after a program's end; its child processes may keep the output open
POLL_INTERVAL = 0.05  # between two checks whether the program has ended or was cancelled
MAX_ENTRIES = 500  # entries of a folder of artifacts that are read
READ_SIZE = 65536  # bytes

_FOLDER = re.compile(r"ragflow-codeexec\.[A-Za-z0-9]+")
_SCRIPTS = {"python": "program.py", "nodejs": "program.cjs"}


class SshSettings(SandboxSettings):
    """Settings of the SSH sandbox. `private_key` and `known_hosts` are text, or the path of a file on each worker."""

    host: str = Field(min_length=1)
    port: int = Field(default=22, ge=1, le=65535)
    username: str = Field(min_length=1)
    password: SecretStr | None = None
    private_key: SecretStr | None = None
    passphrase: SecretStr | None = None
    known_hosts: str | None = None
    python_bin: str = Field(default="python3", min_length=1)
    node_bin: str = Field(default="node", min_length=1)
    work_dir: str = Field(default="/tmp", pattern=r"^/")  # noqa: S108 (mktemp makes a folder of its own in it)
    timeout: float = Field(default=30.0, ge=1, le=600)  # seconds of a program
    max_memory_mb: int = Field(default=512, ge=16)

    @model_validator(mode="after")
    def _can_log_in(self) -> "SshSettings":
        if not self.password and not self.private_key:
            raise ValueError("set a password or a private_key")
        return self


class SshSandbox:
    """One account on one machine. Programs may reach whatever the machine reaches, so no program is run twice."""

    def __init__(
        self, settings: SshSettings, guard: Guard, *, resolve: Resolve = address_policy.resolve_in_thread
    ) -> None:
        self._settings = settings
        self._guard = guard
        self._resolve = resolve

    @property
    def is_repeatable(self) -> bool:
        """Return False: a program may change things outside of the sandbox."""
        return False

    async def run(self, program: Program) -> ProgramResult:
        """Run a program and return its result. Raises ToolError if it could not be run or exceeded its timeout."""
        settings = self._settings
        if program.language not in _SCRIPTS:
            raise ToolError(f"The sandbox cannot run {program.language}.")
        addresses = await resolve_checked(
            settings.host, settings.port, self._guard, trusted=True, resolve=self._resolve
        )
        execution = _Execution(settings, addresses, min(program.timeout, settings.timeout))
        thread = ThreadPoolExecutor(1, thread_name_prefix="ssh")
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, execution.run, program)
        except asyncio.CancelledError:
            execution.cancel()
            raise
        finally:
            thread.shutdown(wait=False)


class _Cancelled(Exception):
    """The program was cancelled. Raised in its thread, whose result is then ignored."""


class _Execution:
    """The execution of one program on the machine, controlled by a thread of its own."""

    def __init__(self, settings: SshSettings, addresses: Sequence[str], seconds: float) -> None:
        self._settings = settings
        self._addresses = addresses
        self._seconds = seconds
        self._is_cancelled = threading.Event()
        self._paramiko: Any = None

    def cancel(self) -> None:
        """Cancel the program. May be called from any thread."""
        self._is_cancelled.set()

    def run(self, program: Program) -> ProgramResult:
        """Run the program and return its result. Raises ToolError."""
        self._paramiko = _import_paramiko()
        try:
            with closing(self._connect()) as client:
                folder = self._create_folder(client)
                try:
                    return self._execute(client, folder, program)
                finally:
                    with suppress(OSError, EOFError, self._paramiko.SSHException):
                        _run_short_command(client, f"rm -rf {quote(folder)}")
        except (OSError, EOFError, ValueError, self._paramiko.SSHException) as error:
            text = str(error) or type(error).__name__
            raise ToolError(f"Provider system execution failed: {text}") from error

    def _connect(self) -> Any:
        settings = self._settings
        client = self._paramiko.SSHClient()  # by default it refuses hosts with unknown keys
        client.load_system_host_keys()
        _add_known_hosts(client, settings.known_hosts, self._paramiko)
        key = _load_private_key(settings, self._paramiko)
        client.connect(
            settings.host,
            settings.port,
            username=settings.username,
            password=settings.password.get_secret_value() if settings.password else None,
            pkey=key,
            sock=_connect_first(self._addresses, settings.port),
            allow_agent=False,
            look_for_keys=False,
            timeout=STEP_TIMEOUT,
            banner_timeout=STEP_TIMEOUT,
            auth_timeout=STEP_TIMEOUT,
        )
        return client

    def _create_folder(self, client: Any) -> str:
        base = self._settings.work_dir.rstrip("/")
        printed = _run_short_command(client, f"umask 077 && mktemp -d {quote(f'{base}/ragflow-codeexec.XXXXXX')}")
        folder = printed.strip().splitlines()[-1] if printed.strip() else ""
        if not folder.startswith(f"{base}/") or not _FOLDER.fullmatch(folder.removeprefix(f"{base}/")):
            raise ToolError(
                f"Provider system execution failed: no folder could be created in {base}/ on the sandbox machine."
            )
        return folder

    def _execute(self, client: Any, folder: str, program: Program) -> ProgramResult:
        remote = RemoteProgram.of(program)
        script = _SCRIPTS[program.language]
        with closing(client.open_sftp()) as files:
            files.get_channel().settimeout(STEP_TIMEOUT)
            files.putfo(io.BytesIO(remote.text.encode()), f"{folder}/{script}")
        output, code = self._run_command(client, command_of(self._settings, program.language, folder), remote)
        with closing(client.open_sftp()) as files:
            files.get_channel().settimeout(STEP_TIMEOUT)
            artifacts = produced_files.select_files(_files_below(files, f"{folder}/artifacts"))
        result = output.result(code, "" if code >= 0 else "The program was ended.")
        return ProgramResult(
            stdout=result.stdout,
            stderr=result.stderr.replace(f"{folder}/", ""),
            exit_code=result.exit_code,
            value=result.value,
            has_value=result.has_value,
            files=artifacts.files,
            skipped=artifacts.skipped,
        )

    def _run_command(self, client: Any, command: str, remote: RemoteProgram) -> tuple[RemoteOutput, int]:
        """Run a command and return the program's output and exit code. In any case its process group is killed."""
        mark = secrets.token_hex(16).encode()
        output, head = RemoteOutput(remote.mark), _FirstLine(mark)
        channel = client.get_transport().open_session(timeout=STEP_TIMEOUT)
        try:
            channel.exec_command(f"exec sh -c {quote(f'echo {mark.decode()}$$; {command}')}")
            code = self._read_output(channel, output, head)
        finally:
            with suppress(OSError, EOFError, self._paramiko.SSHException):
                if head.leader:
                    _run_short_command(
                        client, f"kill -KILL -{head.leader} 2>/dev/null || kill -KILL {head.leader} 2>/dev/null; :"
                    )
            channel.close()
        return output, code

    def _read_output(self, channel: Any, output: RemoteOutput, head: "_FirstLine") -> int:
        """Read the output until the program ends, and return its exit code."""
        end = time.monotonic() + self._seconds
        drain_until: float | None = None
        while True:
            while channel.recv_ready():
                output.add(stdout=head.rest_of(channel.recv(READ_SIZE)))
            while channel.recv_stderr_ready():
                output.add(stderr=channel.recv_stderr(READ_SIZE))
            now = time.monotonic()
            if channel.exit_status_ready():
                drain_until = drain_until or now + DRAIN_TIMEOUT
                is_over = channel.eof_received and not channel.recv_ready() and not channel.recv_stderr_ready()
                if is_over or now >= drain_until:
                    return int(channel.recv_exit_status())
            elif channel.closed:
                raise ToolError("Provider system execution failed: the connection broke.")
            if self._is_cancelled.is_set():
                raise _Cancelled
            if now >= end:
                raise ToolError(f"Execution timed out after {self._seconds:g} seconds")
            select.select([] if channel.eof_received else [channel], [], [], POLL_INTERVAL)


class _FirstLine:
    """Reads the first line of the output, a mark and the process group leader, and drops what came before it."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._buffer = b""
        self.leader = 0

    def rest_of(self, data: bytes) -> bytes:
        """Return the part of the data that comes after the first line."""
        if self.leader:
            return data
        self._buffer += data
        _, found, after_mark = self._buffer.partition(self._mark)
        number, ended, rest = after_mark.partition(b"\n")
        if found and ended and number.strip().isdigit():
            self.leader = int(number)
            return rest
        return b""


def command_of(settings: SshSettings, language: str, folder: str) -> str:
    """Return the shell command that sets limits in a program's folder and then executes the program."""
    seconds = int(settings.timeout) + 1
    place = quote(folder)
    limits = [f"ulimit -t {seconds}", "ulimit -c 0", "ulimit -f 131072"]
    if language == "python":
        limits.append(f"ulimit -v {settings.max_memory_mb * 1024}")
        program = f"{quote(settings.python_bin)} program.py"
    else:  # Node reserves far more address space than it uses, so only its heap is limited
        program = f"{quote(settings.node_bin)} --max-old-space-size={settings.max_memory_mb} program.cjs"
    environment = f'HOME={place} TMPDIR={place} PATH="$PATH" LANG=C.UTF-8 MPLBACKEND=Agg PYTHONUNBUFFERED=1'
    bounds = "; ".join(f"{limit} 2>/dev/null" for limit in limits)
    return f"cd {place} && mkdir artifacts && {{ {bounds}; exec env -i {environment} {program} </dev/null; }}"


def _run_short_command(client: Any, command: str) -> str:
    """Run a short command and return what it prints."""
    _, stdout, _ = client.exec_command(f"exec sh -c {quote(command)}", timeout=STEP_TIMEOUT)
    return str(stdout.read(READ_SIZE).decode("utf-8", "replace"))


def _files_below(files: Any, folder: str, inside: str = "", depth: int = 0) -> Iterator[ProducedFile | SkippedFile]:
    try:
        entries = sorted(_entries(files, f"{folder}/{inside}"), key=lambda entry: entry.filename)
    except OSError:  # the folder is gone or not readable
        return
    for entry in entries:
        name = f"{inside}{entry.filename}"
        if stat.S_ISDIR(entry.st_mode) and depth < produced_files.MAX_DEPTH:
            yield from _files_below(files, folder, f"{name}/", depth + 1)
        elif not stat.S_ISREG(entry.st_mode):
            yield SkippedFile(name, produced_files.NOT_REGULAR)
        elif produced_files.mime_type(name) is None:
            yield SkippedFile(name, produced_files.UNSUPPORTED_TYPE)
        elif entry.st_size > produced_files.MAX_FILE_BYTES:
            yield SkippedFile(name, produced_files.TOO_LARGE)
        else:
            with closing(files.open(f"{folder}/{name}", "rb")) as file:
                yield from produced_files.check_files([(name, file.read(produced_files.MAX_FILE_BYTES))])


def _entries(files: Any, folder: str) -> Iterator[Any]:
    for number, entry in enumerate(files.listdir_iter(folder)):
        if number == MAX_ENTRIES:
            return
        yield entry


def _connect_first(addresses: Sequence[str], port: int) -> socket.socket:
    """Connect to the first address that answers. Raises OSError."""
    last: OSError | None = None
    for address in addresses:
        try:
            return socket.create_connection((address, port), STEP_TIMEOUT)
        except OSError as error:
            last = error
    assert last is not None  # there is at least one address
    raise last


def _add_known_hosts(client: Any, known_hosts: str | None, paramiko: Any) -> None:
    """Add the keys of a known_hosts file to the client. Raises ToolError for a line that is not supported."""
    if not known_hosts:
        return
    is_text = any(mark in known_hosts for mark in " \n")
    text = known_hosts if is_text else Path(known_hosts).read_text("utf-8")
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        entry = None if line.startswith("@") else paramiko.hostkeys.HostKeyEntry.from_line(line)
        if entry is None:
            raise ToolError("The sandbox provider ssh refuses its settings: known_hosts: a line is not a host key.")
        for name in entry.hostnames:
            client.get_host_keys().add(name, entry.key.get_name(), entry.key)


def _load_private_key(settings: SshSettings, paramiko: Any) -> Any:
    """Return the private key to log in with. Raises ToolError if it cannot be read."""
    if settings.private_key is None:
        return None
    text = settings.private_key.get_secret_value()
    passphrase = settings.passphrase.get_secret_value() if settings.passphrase else None
    if "PRIVATE KEY" not in text:
        text = Path(os.path.expanduser(text)).read_text("utf-8")
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        with suppress(paramiko.SSHException, ValueError):  # a key of another kind
            return kind.from_private_key(io.StringIO(text), password=passphrase)
    raise ToolError("The sandbox provider ssh refuses its settings: private_key: it cannot be read.")


def _import_paramiko() -> Any:
    try:
        return importlib.import_module("paramiko")
    except ImportError as error:
        raise ToolError('The ssh sandbox needs the extra "ssh" on every worker: pip install easel[ssh]') from error
