"""The execution of one program over SSH, with asyncssh: folder, files, output, and the end of its processes."""

import asyncio
import os
import re
import secrets
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote

import asyncssh
from asyncssh.constants import EXTENDED_DATA_STDERR

from canvas.errors import ToolError
from providers.address_policy import connect_first
from providers.interfaces import ProducedFile, Program, ProgramResult, SkippedFile
from providers.sandboxes import produced_files
from providers.sandboxes.remote_program import RemoteOutput, RemoteProgram
from providers.sandboxes.ssh import SshSettings

STEP_TIMEOUT = 10.0  # for connecting, and for each step around a program
DRAIN_TIMEOUT = 0.5  # for the last output after a program's end; its child processes may keep the output open
MAX_ENTRIES = 500  # entries of a folder of artifacts that are read
MAX_SHORT_OUTPUT = 65536  # characters of a short command's output

FAILED = "Provider system execution failed: "

_CLEANUP_ERRORS = (OSError, asyncssh.Error)  # they must not hide the program's result or error
_FOLDER = re.compile(r"ragflow-codeexec\.[A-Za-z0-9]+")
_SCRIPTS = {"python": "program.py", "nodejs": "program.cjs"}


async def execute(settings: SshSettings, addresses: Sequence[str], program: Program) -> ProgramResult:
    """Run a program on the machine, and remove what it leaves there. Raises ToolError."""
    try:
        async with _connection(settings, addresses) as connection, _folder(connection, settings) as folder:
            return await _run_in_folder(connection, settings, folder, program)
    except asyncssh.HostKeyNotVerifiable as error:
        text = f"the key of {settings.host} is not in known_hosts, or does not match: {error.reason}"
        raise ToolError(f"{FAILED}{text}") from error
    except asyncssh.PermissionDenied as error:
        raise ToolError(f"{FAILED}Authentication failed: {error.reason}") from error
    except (OSError, ValueError, asyncssh.Error) as error:  # a TimeoutError is an OSError
        raise ToolError(f"{FAILED}{str(error) or type(error).__name__}") from error


@asynccontextmanager
async def _connection(settings: SshSettings, addresses: Sequence[str]) -> AsyncGenerator[asyncssh.SSHClientConnection]:
    known_hosts = await asyncio.to_thread(_load_known_hosts, settings.known_hosts)
    key = await asyncio.to_thread(_load_private_key, settings)
    async with asyncio.timeout(STEP_TIMEOUT):
        connection = await asyncssh.connect(
            settings.host,
            settings.port,
            sock=await connect_first(addresses, settings.port, STEP_TIMEOUT),
            username=settings.username,
            password=settings.password.get_secret_value() if settings.password else None,
            client_keys=[key] if key is not None else None,
            known_hosts=known_hosts,
            agent_path=None,
            config=None,
        )
    try:
        yield connection
    finally:
        connection.abort()


@asynccontextmanager
async def _folder(connection: asyncssh.SSHClientConnection, settings: SshSettings) -> AsyncGenerator[str]:
    """Create a folder for a program, and remove it in the end."""
    base = settings.work_dir.rstrip("/")
    printed = await _run_short_command(connection, f"umask 077 && mktemp -d {quote(f'{base}/ragflow-codeexec.XXXXXX')}")
    folder = printed.strip().splitlines()[-1] if printed.strip() else ""
    if not folder.startswith(f"{base}/") or not _FOLDER.fullmatch(folder.removeprefix(f"{base}/")):
        raise ToolError(f"{FAILED}no folder could be created in {base}/ on the sandbox machine.")
    try:
        yield folder
    finally:
        with suppress(*_CLEANUP_ERRORS):
            await _run_short_command(connection, f"rm -rf {quote(folder)}")


async def _run_in_folder(
    connection: asyncssh.SSHClientConnection, settings: SshSettings, folder: str, program: Program
) -> ProgramResult:
    remote = RemoteProgram.of(program)
    path = f"{folder}/{_SCRIPTS[program.language]}"
    async with (
        asyncio.timeout(STEP_TIMEOUT),
        connection.start_sftp_client() as sftp,
        sftp.open(path, "wb") as script,
    ):
        await script.write(remote.text.encode())
    seconds = min(program.timeout, settings.timeout)
    output, code = await _run_command(connection, command_of(settings, program.language, folder), remote, seconds)
    async with connection.start_sftp_client() as sftp:
        artifacts = produced_files.select_files([file async for file in _artifacts(sftp, f"{folder}/artifacts")])
    result = output.result(code, "" if code >= 0 else "The program was ended.")
    return replace(
        result, stderr=result.stderr.replace(f"{folder}/", ""), files=artifacts.files, skipped=artifacts.skipped
    )


async def _run_command(
    connection: asyncssh.SSHClientConnection, command: str, remote: RemoteProgram, seconds: float
) -> tuple[RemoteOutput, int]:
    """Run a command and return the program's output and exit code. In any case its process group is killed."""
    mark = secrets.token_hex(16)
    begin = f"exec sh -c {quote(f'echo {mark}$$; {command}')}"
    session = _ProgramSession(RemoteOutput(remote.mark), mark.encode())
    async with asyncio.timeout(STEP_TIMEOUT):
        channel, _ = await connection.create_session(lambda: session, begin, encoding=None)
        channel.write_eof()
    try:
        async with asyncio.timeout(seconds):
            code = await asyncio.shield(session.exit_code)
        await asyncio.wait({session.closed}, timeout=DRAIN_TIMEOUT)
    except TimeoutError as error:
        raise ToolError(f"Execution timed out after {seconds:g} seconds") from error
    finally:
        with suppress(*_CLEANUP_ERRORS):
            if leader := session.leader:
                kill = f"kill -KILL -{leader} 2>/dev/null || kill -KILL {leader} 2>/dev/null; :"
                await _run_short_command(connection, kill)
                await asyncio.wait({session.closed}, timeout=DRAIN_TIMEOUT)  # output may still be on its way
        channel.abort()
    return session.output, code


class _ProgramSession(asyncssh.SSHClientSession[bytes]):
    """The session of a program's command: collects its output.

    `exit_code` is the program's (-1 after a signal), or the error that ended the session; `closed` is done when the
    output has ended, too.
    """

    def __init__(self, output: RemoteOutput, mark: bytes) -> None:
        loop = asyncio.get_running_loop()
        self.output = output
        self.exit_code: asyncio.Future[int] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._first_line = _FirstLine(mark)

    @property
    def leader(self) -> int:
        """The leader of the program's process group; 0 if it is not known yet."""
        return self._first_line.leader

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if self.exit_code.done() and self.exit_code.exception() is not None:
            return  # the output has exceeded its limit
        try:
            if datatype == EXTENDED_DATA_STDERR:
                self.output.add(stderr=data)
            else:
                self.output.add(stdout=self._first_line.rest_of(data))
        except ToolError as error:
            self._fail(error)

    def exit_status_received(self, status: int) -> None:
        self._end(status)

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._end(-1)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ToolError(f"{FAILED}the connection broke."))
        if not self.closed.done():
            self.closed.set_result(None)

    def _end(self, code: int) -> None:
        if not self.exit_code.done():
            self.exit_code.set_result(code)

    def _fail(self, error: ToolError) -> None:
        if not self.exit_code.done():
            self.exit_code.set_exception(error)
            self.exit_code.exception()  # retrieved, so that asyncio logs no warning if nobody waits


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


async def _run_short_command(connection: asyncssh.SSHClientConnection, command: str) -> str:
    """Run a short command and return what it prints."""
    async with asyncio.timeout(STEP_TIMEOUT):
        done = await connection.run(f"exec sh -c {quote(command)}", errors="replace", stdin=asyncssh.DEVNULL)
    return str(done.stdout or "")[:MAX_SHORT_OUTPUT]


async def _artifacts(
    sftp: asyncssh.SFTPClient, folder: str, inside: str = "", depth: int = 0
) -> AsyncIterator[ProducedFile | SkippedFile]:
    """Yield the files below a folder, each read within STEP_TIMEOUT."""
    for name, mode, size in await _entries(sftp, f"{folder}/{inside}"):
        path = f"{inside}{name}"
        if stat.S_ISDIR(mode) and depth < produced_files.MAX_DEPTH:
            async for file in _artifacts(sftp, folder, f"{path}/", depth + 1):
                yield file
        elif not stat.S_ISREG(mode):
            yield SkippedFile(path, produced_files.NOT_REGULAR)
        elif produced_files.mime_type(path) is None:
            yield SkippedFile(path, produced_files.UNSUPPORTED_TYPE)
        elif size > produced_files.MAX_FILE_BYTES:
            yield SkippedFile(path, produced_files.TOO_LARGE)
        else:
            async with asyncio.timeout(STEP_TIMEOUT), sftp.open(f"{folder}/{path}", "rb") as file:
                content = bytes(await file.read(produced_files.MAX_FILE_BYTES))
            for checked in produced_files.check_files([(path, content)]):
                yield checked


async def _entries(sftp: asyncssh.SFTPClient, folder: str) -> list[tuple[str, int, int]]:
    """Return name, mode and size of the first entries of a folder; none if it is gone or not readable."""
    found = list[tuple[str, int, int]]()
    try:
        async with asyncio.timeout(STEP_TIMEOUT):
            async for entry in sftp.scandir(folder):
                name = os.fsdecode(entry.filename)
                if name not in (".", ".."):
                    found.append((name, entry.attrs.permissions or 0, entry.attrs.size or 0))
                if len(found) == MAX_ENTRIES:
                    break
    except asyncssh.SFTPError:
        return []
    return sorted(found)


def _load_known_hosts(setting: str | None) -> asyncssh.SSHKnownHosts:
    """Return the account's known_hosts and those of the user who runs the worker. Raises ToolError."""
    own = Path("~/.ssh/known_hosts").expanduser()
    text = own.read_text("utf-8", "replace") if own.is_file() else ""
    if setting:
        added = setting if any(mark in setting for mark in " \n") else Path(setting).read_text("utf-8")
        for line in added.splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                _check_host_key(line)
        text = f"{text}\n{added}"
    return asyncssh.import_known_hosts(text)


def _check_host_key(line: str) -> None:
    """Raise ToolError for a line that asyncssh would leave out."""
    fields = line.split()
    fields = fields[1:] if fields[0].startswith("@") else fields
    try:
        asyncssh.import_public_key(" ".join(fields[1:]))
    except asyncssh.KeyImportError as error:
        raise ToolError(
            "The sandbox provider ssh refuses its settings: known_hosts: a line is not a host key."
        ) from error


def _load_private_key(settings: SshSettings) -> asyncssh.SSHKey | None:
    """Return the private key to log in with. Raises ToolError if it cannot be read."""
    if settings.private_key is None:
        return None
    text = settings.private_key.get_secret_value()
    if "PRIVATE KEY" not in text:
        text = Path(os.path.expanduser(text)).read_text("utf-8")
    passphrase = settings.passphrase.get_secret_value() if settings.passphrase else None
    try:
        return asyncssh.import_private_key(text, passphrase)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise ToolError("The sandbox provider ssh refuses its settings: private_key: it cannot be read.") from error
