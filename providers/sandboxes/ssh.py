"""A sandbox on another machine, reached by SSH: a folder for each program, which goes when the program is done.

The program runs as the user of the account in a process group of its own, with an empty environment and the shell's
limits; the group is killed when its time is over, when nobody waits any more, and in the end. What the machine's user
may do, the program may do: the machine is the boundary. It keeps the promise of `providers.interfaces.Sandbox`.

The connection goes to the address that was looked up here, and the host's key must be known under the host's own name.
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
from providers.http import address_policy
from providers.http.address_policy import Guard, Resolve, addresses_of
from providers.interfaces import ProducedFile, Program, ProgramResult, SkippedFile
from providers.sandboxes import produced_files
from providers.sandboxes.remote_program import RemoteOutput, RemoteProgram
from providers.sandboxes.settings import SandboxSettings

STEP_SECONDS = 10.0  # for connecting, and for each step around a program
LAST_WORDS_SECONDS = 0.5  # for what a program said right before its end; others may hold its output open for ever
LOOK_SECONDS = 0.05  # between two looks whether the program has ended, or nobody waits any more
MOST_NAMES = 500  # of a folder of artifacts that are looked at
AT_ONCE = 65536  # bytes

_FOLDER = re.compile(r"ragflow-codeexec\.[A-Za-z0-9]+")
_SCRIPTS = {"python": "program.py", "nodejs": "program.cjs"}


class SshSettings(SandboxSettings):
    """`private_key` and `known_hosts` are the text itself, or the path of a file on every worker."""

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
            raise ValueError("give a password or a private_key")
        return self


class SshSandbox:
    """One account on one machine. Its programs may reach whatever the machine reaches, so none is run twice."""

    def __init__(self, settings: SshSettings, guard: Guard, *, resolve: Resolve = address_policy.looked_up) -> None:
        self._settings = settings
        self._guard = guard
        self._resolve = resolve

    @property
    def repeatable(self) -> bool:
        """Whether nothing outside can have changed by what a program did."""
        return False

    async def run(self, program: Program) -> ProgramResult:
        """Raises ToolError when it could not be run, or ran out of time."""
        settings = self._settings
        if program.language not in _SCRIPTS:
            raise ToolError(f"The sandbox cannot run {program.language}.")
        found = await addresses_of(settings.host, settings.port, self._guard, trusted=True, resolve=self._resolve)
        visit = _Visit(settings, found, min(program.timeout, settings.timeout))
        thread = ThreadPoolExecutor(1, thread_name_prefix="ssh")
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, visit.run, program)
        except asyncio.CancelledError:
            visit.call_off()
            raise
        finally:
            thread.shutdown(wait=False)


class _CalledOff(Exception):
    """Nobody waits for the program any more. Raised in its thread, where nobody sees it."""


class _Visit:
    """One program on the machine, in a thread of its own."""

    def __init__(self, settings: SshSettings, found: Sequence[str], seconds: float) -> None:
        self._settings = settings
        self._found = found
        self._seconds = seconds
        self._called_off = threading.Event()
        self._paramiko: Any = None

    def call_off(self) -> None:
        """End the program soon. May be called from any thread."""
        self._called_off.set()

    def run(self, program: Program) -> ProgramResult:
        """Raises ToolError."""
        self._paramiko = _paramiko()
        try:
            with closing(self._connected()) as client:
                folder = self._made_folder(client)
                try:
                    return self._carried_out(client, folder, program)
                finally:
                    with suppress(OSError, EOFError, self._paramiko.SSHException):
                        _said_to(client, f"rm -rf {quote(folder)}")
        except (OSError, EOFError, ValueError, self._paramiko.SSHException) as error:
            text = str(error) or type(error).__name__
            raise ToolError(f"Provider system execution failed: {text}") from error

    def _connected(self) -> Any:
        settings = self._settings
        client = self._paramiko.SSHClient()  # it refuses hosts whose key it does not know
        client.load_system_host_keys()
        _know_hosts(client, settings.known_hosts, self._paramiko)
        key = _key_of(settings, self._paramiko)
        client.connect(
            settings.host,
            settings.port,
            username=settings.username,
            password=settings.password.get_secret_value() if settings.password else None,
            pkey=key,
            sock=_first_open(self._found, settings.port),
            allow_agent=False,
            look_for_keys=False,
            timeout=STEP_SECONDS,
            banner_timeout=STEP_SECONDS,
            auth_timeout=STEP_SECONDS,
        )
        return client

    def _made_folder(self, client: Any) -> str:
        base = self._settings.work_dir.rstrip("/")
        told = _said_to(client, f"umask 077 && mktemp -d {quote(f'{base}/ragflow-codeexec.XXXXXX')}")
        folder = told.strip().splitlines()[-1] if told.strip() else ""
        if not folder.startswith(f"{base}/") or not _FOLDER.fullmatch(folder.removeprefix(f"{base}/")):
            raise ToolError("Provider system execution failed: there is no folder for programs on the machine.")
        return folder

    def _carried_out(self, client: Any, folder: str, program: Program) -> ProgramResult:
        wrapped = RemoteProgram.of(program)
        script = _SCRIPTS[program.language]
        with closing(client.open_sftp()) as files:
            files.get_channel().settimeout(STEP_SECONDS)
            files.putfo(io.BytesIO(wrapped.text.encode()), f"{folder}/{script}")
        said, code = self._watched(client, command_of(self._settings, program.language, folder), wrapped)
        with closing(client.open_sftp()) as files:
            files.get_channel().settimeout(STEP_SECONDS)
            found = produced_files.within_limits(_files_below(files, f"{folder}/artifacts"))
        result = said.result(code, "" if code >= 0 else "The program was ended.")
        return ProgramResult(
            stdout=result.stdout,
            stderr=result.stderr.replace(f"{folder}/", ""),
            exit_code=result.exit_code,
            value=result.value,
            has_value=result.has_value,
            files=found.files,
            skipped=found.skipped,
        )

    def _watched(self, client: Any, command: str, wrapped: RemoteProgram) -> tuple[RemoteOutput, int]:
        """What a program said and its exit code. Its group is gone afterwards, whatever has happened."""
        mark = secrets.token_hex(16).encode()
        said, head = RemoteOutput(wrapped.mark), _Head(mark)
        channel = client.get_transport().open_session(timeout=STEP_SECONDS)
        try:
            channel.exec_command(f"exec sh -c {quote(f'echo {mark.decode()}$$; {command}')}")
            code = self._listened(channel, said, head)
        finally:
            with suppress(OSError, EOFError, self._paramiko.SSHException):
                if head.leader:
                    _said_to(
                        client, f"kill -KILL -{head.leader} 2>/dev/null || kill -KILL {head.leader} 2>/dev/null; :"
                    )
            channel.close()
        return said, code

    def _listened(self, channel: Any, said: RemoteOutput, head: "_Head") -> int:
        end = time.monotonic() + self._seconds
        last_words: float | None = None
        while True:
            while channel.recv_ready():
                said.hear(stdout=head.rest_of(channel.recv(AT_ONCE)))
            while channel.recv_stderr_ready():
                said.hear(stderr=channel.recv_stderr(AT_ONCE))
            now = time.monotonic()
            if channel.exit_status_ready():
                last_words = last_words or now + LAST_WORDS_SECONDS
                is_over = channel.eof_received and not channel.recv_ready() and not channel.recv_stderr_ready()
                if is_over or now >= last_words:
                    return int(channel.recv_exit_status())
            elif channel.closed:
                raise ToolError("Provider system execution failed: the connection broke.")
            if self._called_off.is_set():
                raise _CalledOff
            if now >= end:
                raise ToolError(f"Execution timed out after {self._seconds:g} seconds")
            select.select([] if channel.eof_received else [channel], [], [], LOOK_SECONDS)


class _Head:
    """The first thing on a program's output: the leader of its group. What a shell says before is left out."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._kept = b""
        self.leader = 0

    def rest_of(self, piece: bytes) -> bytes:
        if self.leader:
            return piece
        self._kept += piece
        _, found, behind = self._kept.partition(self._mark)
        number, ended, rest = behind.partition(b"\n")
        if found and ended and number.strip().isdigit():
            self.leader = int(number)
            return rest
        return b""


def command_of(settings: SshSettings, language: str, folder: str) -> str:
    """What a shell is to do in a program's folder: limit itself, and become the program."""
    seconds = int(settings.timeout) + 1
    place = quote(folder)
    limits = [f"ulimit -t {seconds}", "ulimit -c 0", "ulimit -f 131072"]
    if language == "python":
        limits.append(f"ulimit -v {settings.max_memory_mb * 1024}")
        program = f"{quote(settings.python_bin)} program.py"
    else:  # Node reserves far more than it uses
        program = f"{quote(settings.node_bin)} --max-old-space-size={settings.max_memory_mb} program.cjs"
    environment = f'HOME={place} TMPDIR={place} PATH="$PATH" LANG=C.UTF-8 MPLBACKEND=Agg PYTHONUNBUFFERED=1'
    bounds = "; ".join(f"{limit} 2>/dev/null" for limit in limits)
    return f"cd {place} && mkdir artifacts && {{ {bounds}; exec env -i {environment} {program} </dev/null; }}"


def _said_to(client: Any, command: str) -> str:
    """What a short command of our own prints."""
    _, stdout, _ = client.exec_command(f"exec sh -c {quote(command)}", timeout=STEP_SECONDS)
    return str(stdout.read(AT_ONCE).decode("utf-8", "replace"))


def _files_below(files: Any, folder: str, inside: str = "", depth: int = 0) -> Iterator[ProducedFile | SkippedFile]:
    try:
        entries = sorted(_entries(files, f"{folder}/{inside}"), key=lambda entry: entry.filename)
    except OSError:  # it is gone, or closed to us
        return
    for entry in entries:
        name = f"{inside}{entry.filename}"
        if stat.S_ISDIR(entry.st_mode) and depth < produced_files.DEEPEST:
            yield from _files_below(files, folder, f"{name}/", depth + 1)
        elif not stat.S_ISREG(entry.st_mode):
            yield SkippedFile(name, produced_files.NOT_PLAIN)
        elif produced_files.mime_type(name) is None:
            yield SkippedFile(name, produced_files.OTHER_KIND)
        elif entry.st_size > produced_files.LARGEST:
            yield SkippedFile(name, produced_files.NO_ROOM)
        else:
            with closing(files.open(f"{folder}/{name}", "rb")) as file:
                yield from produced_files.received([(name, file.read(produced_files.LARGEST))])


def _entries(files: Any, folder: str) -> Iterator[Any]:
    for number, entry in enumerate(files.listdir_iter(folder)):
        if number == MOST_NAMES:
            return
        yield entry


def _first_open(found: Sequence[str], port: int) -> socket.socket:
    """A connection to the first address that answers. Raises OSError."""
    last: OSError | None = None
    for address in found:
        try:
            return socket.create_connection((address, port), STEP_SECONDS)
        except OSError as error:
            last = error
    assert last is not None  # there is at least one address
    raise last


def _know_hosts(client: Any, told: str | None, paramiko: Any) -> None:
    """Take over the keys of a known_hosts file. Raises ToolError for a line that cannot be taken as it is meant."""
    if not told:
        return
    text = told if any(mark in told for mark in " \n") else Path(told).read_text("utf-8")
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        entry = None if line.startswith("@") else paramiko.hostkeys.HostKeyEntry.from_line(line)
        if entry is None:
            raise ToolError(
                "The sandbox provider ssh refuses its settings: known_hosts: there is a line that is no key."
            )
        for name in entry.hostnames:
            client.get_host_keys().add(name, entry.key.get_name(), entry.key)


def _key_of(settings: SshSettings, paramiko: Any) -> Any:
    """The private key to log in with. Raises ToolError for one that cannot be read."""
    if settings.private_key is None:
        return None
    text = settings.private_key.get_secret_value()
    passphrase = settings.passphrase.get_secret_value() if settings.passphrase else None
    if "PRIVATE KEY" not in text:
        text = Path(os.path.expanduser(text)).read_text("utf-8")
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        with suppress(paramiko.SSHException, ValueError):  # it is a key of another kind
            return kind.from_private_key(io.StringIO(text), password=passphrase)
    raise ToolError("The sandbox provider ssh refuses its settings: private_key: it cannot be read.")


def _paramiko() -> Any:
    try:
        return importlib.import_module("paramiko")
    except ImportError as error:
        raise ToolError('The ssh sandbox needs the extra "ssh" on every worker: pip install easel[ssh]') from error
