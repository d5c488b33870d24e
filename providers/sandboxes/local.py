"""A sandbox on this machine: a child process with limits, and with namespaces where the kernel allows them.

    result = await LocalSandbox().run(Program("python", "def main(): return 1", {}, timeout=10, key="..."))

The sandbox is meant for development and for trusted authors. If Linux allows namespaces, the code has no network, does
not see other processes, all its own processes end with it, and it finds only two kinds of files: the programs that it
needs, read-only, and a folder of its own. bubblewrap isolates it where it is installed and works: see
`providers/sandboxes/bubblewrap.py`. Elsewhere the child isolates itself: see `providers/sandboxes/inside/child.py` and
`providers/sandboxes/inside/mounts.py`. The program does not get Easel's environment variables.
"""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from canvas.errors import ToolError
from providers.interfaces import Program, ProgramResult
from providers.sandboxes import produced_files
from providers.sandboxes.bubblewrap import Bubblewrap, IsolatedCommand, file_limits, find_bubblewrap, prepare_command

CHILD = Path(__file__).parent / "inside" / "child.py"
NODE_HARNESS = Path(__file__).parent / "inside" / "main.cjs"
ARTIFACTS = "artifacts"
WORK, ROOT = "work", "root"  # the program's own folder, and the folder in which the child mounts a new root
MEASURE_INTERVAL = 0.2  # seconds between two measurements of the program's folder
_READ_SIZE = 65536  # bytes
_SCRIPTS = {"python": "main.py", "nodejs": "main.cjs"}
_EXPORT_MAIN = "\n;if (typeof main === 'function') globalThis.main = main;\n"


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """Limits of a program. `seconds` is wall-clock time; the limit of CPU time is one second longer."""

    seconds: float = 30.0
    memory: int = 512 * 1024 * 1024  # bytes of each process, and on Linux also of all processes together
    output: int = 1024 * 1024  # bytes of stdout and stderr together
    result: int = 16 * 1024 * 1024  # bytes
    open_files: int = 64
    processes: int = 64  # including threads
    disk: int = 256 * 1024 * 1024  # bytes in the program's folder
    files: int = 10_000  # in the program's folder


class LocalSandbox:
    """The local implementation of `providers.interfaces.Sandbox`.

    `bubblewrap`: name or path of its program; "" makes the child isolate itself, as where bubblewrap does not work.
    `must_isolate`: refuse to run code that would have a network; only then is the sandbox `is_repeatable`.
    `allow_root`: run code although this process is root, so that the code could change root's files.
    """

    def __init__(
        self,
        *,
        python: str = sys.executable,
        node: str = "node",
        bubblewrap: str = "bwrap",
        work_dir: Path | None = None,
        limits: ProgramLimits | None = None,
        must_isolate: bool = False,
        allow_root: bool = False,
    ) -> None:
        self._python = python
        self._node = node
        self._bubblewrap = bubblewrap
        self._work_dir = work_dir
        self._limits = limits or ProgramLimits()
        self._must_isolate = must_isolate
        self._allow_root = allow_root

    @property
    def is_repeatable(self) -> bool:
        """Return whether programs are always isolated, so that they may be run again."""
        return self._must_isolate

    async def run(self, program: Program) -> ProgramResult:
        """Run a program and return its result. Raises ToolError if it could not be run or exceeded a limit."""
        if os.geteuid() == 0 and not self._allow_root:
            raise ToolError("The local sandbox does not run code as root. Run the worker as another user.")
        if program.language not in _SCRIPTS:
            raise ToolError(f"The local sandbox cannot run {program.language}.")
        node = shutil.which(self._node) if program.language == "nodejs" else ""
        if node is None:
            raise ToolError(f'Node.js ("{self._node}") was not found on the worker. Install it, or set its path.')
        bubblewrap = await asyncio.to_thread(find_bubblewrap, self._bubblewrap)
        isolated_by = bubblewrap.path if bubblewrap is not None and not bubblewrap.defect else None
        # accessible to its owner only
        place = Path(tempfile.mkdtemp(prefix="easel-code-", dir=self._work_dir)).resolve()
        try:
            (place / ROOT).mkdir()
            folder = place / WORK
            folder.mkdir(mode=0o700)
            with tempfile.TemporaryFile() as source:
                return await self._run(program, folder, node, isolated_by, source)
        finally:
            await asyncio.shield(asyncio.to_thread(_remove_folder, place))

    async def _run(
        self, program: Program, folder: Path, node: str, bubblewrap: str | None, source: IO[bytes]
    ) -> ProgramResult:
        nonce = secrets.token_hex(16)
        with contextlib.ExitStack() as pipes, contextlib.ExitStack() as contents:
            out, err, value = (_Pipe(pipes) for _ in range(3))
            ours, theirs = (pipes.enter_context(end) for end in socket.socketpair())
            job = self._job(program, folder, node, nonce, value.write_end)
            job |= {"files": theirs.fileno(), "in_bubblewrap": bubblewrap is not None}
            await asyncio.to_thread(_prepare, program, folder, source, job)
            start = self._prepare_command(bubblewrap, folder, node, contents)
            child = await asyncio.create_subprocess_exec(
                *start.command, self._python, "-I", "-B", "-u", str(CHILD),
                stdin=source, stdout=out.write_end, stderr=err.write_end,
                pass_fds=(value.write_end, theirs.fileno(), *start.descriptors),
                cwd=folder, env=_environment(folder, self._python), start_new_session=True,
            )  # fmt: skip
            contents.close()
            try:
                for pipe in (out, err, value):
                    pipe.close_write_end()
                theirs.close()
                seconds = min(program.timeout, self._limits.seconds)
                code, stdout, stderr, written = await self._run_within_limits(child, seconds, folder, out, err, value)
            finally:
                if child.returncode is None:
                    _kill_group(child.pid)
                    await asyncio.shield(child.wait())
            files = await asyncio.to_thread(_collect_files, ours, folder)
        has_value, result = await asyncio.to_thread(_parse_result, written, nonce.encode())
        return ProgramResult(
            stdout=stdout.decode("utf-8", "replace"),
            stderr=stderr.decode("utf-8", "replace").replace(f"{folder}/", "") or _describe_exit(code),
            exit_code=code,
            value=result,
            has_value=has_value,
            files=files.files,
            skipped=files.skipped,
        )

    def _prepare_command(
        self, bubblewrap: str | None, folder: Path, node: str, stack: contextlib.ExitStack
    ) -> IsolatedCommand:
        """Return how to start the child, which needs nothing before it if it isolates itself."""
        if bubblewrap is None:
            return IsolatedCommand([], [])
        shown = [CHILD, *_required_paths(self._python, node)]
        return prepare_command(bubblewrap, folder, shown, disk=self._limits.disk, stack=stack)

    async def _run_within_limits(
        self,
        child: asyncio.subprocess.Process,
        seconds: float,
        folder: Path,
        out: "_Pipe",
        err: "_Pipe",
        value: "_Pipe",
    ) -> tuple[int, bytes, bytes, bytes]:
        """Return exit code, stdout, stderr and result of a program. Raises ToolError if it exceeds a limit."""
        output_quota = _ByteQuota(self._limits.output, f"Local execution output exceeded {self._limits.output} bytes.")
        result_quota = _ByteQuota(self._limits.result, f"Local execution result exceeded {self._limits.result} bytes.")
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                measuring = group.create_task(_watch_disk(folder, self._limits))
                code = group.create_task(_wait_for_exit(child))
                code.add_done_callback(lambda _: measuring.cancel())
                stdout = group.create_task(out.read(output_quota))
                stderr = group.create_task(err.read(output_quota))
                result = group.create_task(value.read(result_quota))
        except TimeoutError:
            raise ToolError(f"Execution timed out after {seconds:g} seconds") from None
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return code.result(), stdout.result(), stderr.result(), result.result()

    def _job(self, program: Program, folder: Path, node: str, nonce: str, result: int) -> dict[str, Any]:
        """Return the job that the child reads from its standard input."""
        limits = self._limits
        return {
            "nonce": nonce,
            "result": result,
            "parent": os.getpid(),
            "language": program.language,
            "script": str(folder / _SCRIPTS[program.language]),
            "arguments": dict(program.arguments),
            "node": node,
            "harness": str(NODE_HARNESS),
            "must_isolate": self._must_isolate,
            "folder": str(folder),
            "root": str(folder.with_name(ROOT)),
            "shown": [str(place) for place in _required_paths(self._python, node)],
            "file_limits": file_limits(folder, limits.files),
            "limits": {
                "cpu": int(min(program.timeout, limits.seconds)) + 1,
                "memory": limits.memory,
                "file": produced_files.MAX_TOTAL_BYTES,
                "open_files": limits.open_files,
                "processes": limits.processes,
                "disk": limits.disk,
                "files": limits.files,
            },
        }


@dataclass(frozen=True, slots=True)
class Isolation:
    """What isolates programs on this machine. `defect` says why the child cannot isolate itself; "" if it can."""

    bubblewrap: Bubblewrap | None
    defect: str


async def examine_isolation(bubblewrap: str = "bwrap") -> Isolation:
    """Return what isolates programs on this machine, after trying bubblewrap and the child's own way once each."""
    found = await asyncio.to_thread(find_bubblewrap, bubblewrap)
    probe = Program("python", "def main(): return 1", {}, timeout=ProgramLimits().seconds, key="")
    try:
        result = await LocalSandbox(bubblewrap="", must_isolate=True, allow_root=True).run(probe)
    except ToolError as error:
        return Isolation(found, error.message)
    return Isolation(found, "" if result.has_value else result.stderr.strip())


class _ByteQuota:
    """A number of bytes that several readers may read together."""

    def __init__(self, left: int, text: str) -> None:
        self._remaining = left
        self._text = text

    def take(self, size: int) -> None:
        """Subtract bytes that were read. Raises ToolError if none are left."""
        self._remaining -= size
        if self._remaining < 0:
            raise ToolError(self._text)


class _Pipe:
    """A pipe whose write end is passed to the child. The stack closes both ends."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._read_end, self.write_end = os.pipe()
        self._file = stack.enter_context(os.fdopen(self._read_end, "rb", buffering=0))
        self._write_file = stack.enter_context(os.fdopen(self.write_end, "wb", buffering=0))

    def close_write_end(self) -> None:
        """Close this process's copy of the write end."""
        self._write_file.close()

    async def read(self, quota: _ByteQuota) -> bytes:
        """Read until every writer has closed the pipe. Raises ToolError if the quota is exceeded."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._file)
        parts: list[bytes] = []
        try:
            while part := await reader.read(_READ_SIZE):
                quota.take(len(part))
                parts.append(part)
        finally:
            transport.close()
        return b"".join(parts)


async def _wait_for_exit(child: asyncio.subprocess.Process) -> int:
    """Wait for the child and return its exit code; kill its remaining processes, which would keep the pipes open."""
    code = await child.wait()
    _kill_group(child.pid)
    return code


async def _watch_disk(folder: Path, limits: ProgramLimits) -> None:
    """Measure the program's folder again and again. Raises ToolError if it exceeds a limit."""
    while True:
        await asyncio.sleep(MEASURE_INTERVAL)
        size, files = await asyncio.to_thread(_measure_folder, folder, limits)
        if size > limits.disk:
            raise ToolError(f"Local execution left more than {limits.disk} bytes in files.")
        if files > limits.files:
            raise ToolError(f"Local execution left more than {limits.files} files.")


def _measure_folder(folder: Path, limits: ProgramLimits) -> tuple[int, int]:
    """Return bytes and number of the files below a folder; stop counting once either exceeds its limit."""
    size = count = 0
    waiting = [folder]
    while waiting and size <= limits.disk and count <= limits.files:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                else:
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
    return size, count


def _collect_files(from_child: socket.socket, folder: Path) -> produced_files.FileSelection:
    """Return the files of a program that has ended, from the file system of its namespace if it had one."""
    from_child.setblocking(False)
    try:
        _, descriptors, _, _ = socket.recv_fds(from_child, 1, 1)
    except BlockingIOError:
        descriptors = []
    try:
        own = [Path(f"/proc/self/fd/{descriptor}") for descriptor in descriptors]
        return produced_files.collect_files((own or [folder])[0] / ARTIFACTS)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _remove_folder(place: Path) -> None:
    """Remove a folder and its content, also folders that the program has made inaccessible."""
    for path, folders, _ in os.walk(place):
        for name in folders:
            inner = Path(path) / name
            with contextlib.suppress(OSError):
                if not inner.is_symlink():
                    inner.chmod(0o700)
    shutil.rmtree(place, ignore_errors=True)


def _required_paths(python: str, node: str) -> list[Path]:
    """Return the folders and files, besides the system's own, that a program needs to run."""
    interpreter = Path(shutil.which(python) or python)
    places = [Path(sys.prefix), Path(sys.base_prefix)] if python == sys.executable else []
    places += [NODE_HARNESS, *_install_folders(interpreter), *(_install_folders(Path(node)) if node else ())]
    return list(dict.fromkeys(place for place in places if place != Path("/") and place.exists()))


def _install_folders(program: Path) -> list[Path]:
    """Return the folder of an executable, with and without resolving links: `/opt/node` of `/opt/node/bin/node`."""
    return [found.parent.parent for found in (program.absolute(), program.resolve()) if found.parent.name == "bin"]


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the group has no processes left
        os.killpg(leader, signal.SIGKILL)


def _prepare(program: Program, folder: Path, source: IO[bytes], job: dict[str, Any]) -> None:
    (folder / ARTIFACTS).mkdir()
    script = program.script + (_EXPORT_MAIN if program.language == "nodejs" else "")
    (folder / _SCRIPTS[program.language]).write_text(script, encoding="utf-8", errors="replace")
    source.write(json.dumps(job).encode())
    source.seek(0)


def _environment(folder: Path, python: str) -> dict[str, str]:
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    return {
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PATH": f"{Path(python).parent}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "MPLBACKEND": "Agg",
        "PYTHONUNBUFFERED": "1",
        **dict.fromkeys(threads, "1"),
    }


def _parse_result(written: bytes, nonce: bytes) -> tuple[bool, Any]:
    """Return whether there is a result, and the result. Raises ToolError if it cannot be read."""
    _, found, text = written.rpartition(nonce)
    if not found:
        return False, None
    try:
        return True, json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise ToolError(f"The result cannot be read: {error}") from error


def _describe_exit(code: int) -> str:
    """Return the error text for a program that was killed and printed nothing to stderr; "" if it was not killed."""
    number = -code if code < 0 else code - 128
    try:
        name = signal.Signals(number).name
    except ValueError:
        return ""
    reason = " It used more memory or time than it may." if number == signal.SIGKILL else ""
    return f"The program was ended by {name}.{reason}"
