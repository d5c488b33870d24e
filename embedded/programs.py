"""The servers' programs: from wheels, else from PATH, else from Debian's folder of PostgreSQL.

The wheels' own launchers are never called: as root they add a system user and open all parent directories to everyone.
"""

import hashlib
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from embedded.os_user import OsAccount


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """A server's executable. `folders` below `root` are all that it needs and can be copied together."""

    executable: Path
    root: Path = Path("/")
    folders: tuple[str, ...] = ()


def find_package(name: str) -> Path | None:
    """Return the folder of a package without importing it; None if it is not installed."""
    spec = importlib.util.find_spec(name)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


def runnable_programs(programs: Iterable[ServerProgram], place: Path, account: OsAccount) -> Iterator[tuple[Path, int]]:
    """Yield the programs that the account can run, in place or from a copy, each with its major version."""
    for program in programs:
        executable = program.executable
        if (
            (major := _major_version(executable, account)) is None
            and account
            and program.folders
            and executable.is_file()
        ):
            copy = place / f"{executable.name}-{hashlib.sha256(bytes(executable)).hexdigest()[:12]}"
            if not copy.is_dir():
                _copy(program, copy)
            executable = copy / executable.relative_to(program.root)
            major = _major_version(executable, account)
        if major is not None:
            yield executable, major


def _copy(program: ServerProgram, copy: Path) -> None:
    """Copy a program's folders, readable for everyone, completely or not at all."""
    draft = copy.with_suffix(".new")
    shutil.rmtree(draft, ignore_errors=True)
    for folder in program.folders:
        if (program.root / folder).is_dir():  # only Linux wheels have a folder of libraries
            shutil.copytree(program.root / folder, draft / folder, ignore=shutil.ignore_patterns("include"))
    for path in (draft, *draft.rglob("*")):
        path.chmod(0o755)
    draft.rename(copy)


def _major_version(executable: Path, account: OsAccount) -> int | None:
    """Return a program's major version; None if the account cannot run it (closed folder, other libc)."""
    try:
        done = subprocess.run([executable, "--version"], capture_output=True, text=True, cwd="/", **account)  # noqa: S603
    except OSError:
        return None
    version = re.search(r"\d+", done.stdout)
    return int(version.group()) if done.returncode == 0 and version is not None else None
