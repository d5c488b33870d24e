"""The command line of bubblewrap, and how a bubblewrap that does not work here is recognised."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.sandboxes import bubblewrap
from providers.sandboxes.bubblewrap import IsolatedCommand, file_limits, find_bubblewrap, prepare_command
from providers.sandboxes.inside import mounts, seccomp

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="bubblewrap is a program of Linux")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "artifacts").mkdir(parents=True)
    (folder / "main.py").write_text("def main(): return 1")
    return folder


@contextlib.contextmanager
def prepared(folder: Path, *shown: Path) -> Iterator[IsolatedCommand]:
    with contextlib.ExitStack() as stack:
        yield prepare_command("/usr/bin/bwrap", folder, shown, disk=1000, stack=stack)


def make_program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def value_of(command: list[str], *options: str) -> list[str]:
    """Return what precedes each occurrence of these options in a command line."""
    size = len(options)
    return [command[at - 1] for at in range(1, len(command)) if tuple(command[at : at + size]) == options]


def test_folder_is_limited_and_has_a_copy_of_its_content(folder: Path):
    with prepared(folder) as start:
        script = int(value_of(start.command, str(folder / "main.py"))[0])
        content = os.pread(script, 100, 0)

    assert value_of(start.command, "--tmpfs", str(folder)) == ["1000"]
    assert content == b"def main(): return 1"
    assert value_of(start.command, str(folder / "artifacts")) == ["--dir"]
    assert script in start.descriptors


def test_descriptors_are_closed_with_the_stack(folder: Path):
    with prepared(folder) as start:
        assert all(os.fstat(descriptor) for descriptor in start.descriptors)

    for descriptor in start.descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_paths_are_shown_once_and_links_as_links(folder: Path, tmp_path: Path):
    target, link = tmp_path / "python", tmp_path / "link"
    (target / "bin").mkdir(parents=True)
    link.symlink_to(target)

    with prepared(folder, link, target, target / "bin", tmp_path / "missing") as start:
        pass

    assert value_of(start.command, str(link)) == [str(target)]
    assert value_of(start.command, "--ro-bind", str(target), str(target)) != []
    assert not value_of(start.command, "--ro-bind", str(target / "bin"))
    assert not value_of(start.command, "--ro-bind", str(tmp_path / "missing"))


@pytest.mark.parametrize("place", ["/", "/tmp", "/var", "/var/tmp"])
def test_folders_of_the_machine_do_not_replace_the_programs_own(folder: Path, place: str):
    with prepared(folder, Path(place)) as start:
        pass

    assert not value_of(start.command, "--ro-bind", place)


def test_files_are_counted_in_every_file_system_that_a_program_may_write_to(folder: Path):
    with prepared(folder) as start:
        limited = [start.command[at + 1] for at, option in enumerate(start.command) if option == "--tmpfs"]

    assert file_limits(folder, 7) == {str(folder): 7, "/tmp": 2000, "/var/tmp": 2000, "/dev/shm": 2000}
    assert {place for place in limited if not place.startswith("/proc/")} == set(file_limits(folder, 7))


def test_bubblewrap_that_is_not_installed_is_not_found(tmp_path: Path):
    assert find_bubblewrap(str(tmp_path / "bwrap")) is None
    assert find_bubblewrap("") is None


def test_bubblewrap_that_the_kernel_refuses_has_the_reason_as_its_defect(tmp_path: Path):
    script = (
        '[ "$1" = --version ] && echo bubblewrap 0.6.1 && exit\n'
        "echo 'bwrap: Creating new namespace failed: Operation not permitted' >&2; exit 1"
    )
    refused = make_program(tmp_path / "bwrap", script)

    found = find_bubblewrap(refused)

    assert found == bubblewrap.Bubblewrap(refused, "0.6.1", "Creating new namespace failed: Operation not permitted")


def test_bubblewrap_that_fails_without_a_reason_has_its_exit_code_as_its_defect(tmp_path: Path):
    found = find_bubblewrap(make_program(tmp_path / "bwrap", "exit 3"))

    assert found is not None
    assert (found.version, found.defect) == ("unknown", "exit code 3")


def test_bubblewrap_is_tried_once_per_process(tmp_path: Path):
    counting = make_program(tmp_path / "bwrap", f"echo tried >>{tmp_path}/log")

    first, second = find_bubblewrap(counting), find_bubblewrap(counting)

    assert first is second
    assert (tmp_path / "log").read_text() == "tried\ntried\n"  # for its version, and with all options


def test_bubblewrap_is_not_used_on_a_processor_without_a_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seccomp, "NUMBERS", {})

    found = find_bubblewrap(make_program(tmp_path / "bwrap", "exit 0"))

    assert found is not None
    assert "system calls are not known" in found.defect


def test_hidden_entries_of_proc_are_covered_before_proc_becomes_read_only(folder: Path):
    with prepared(folder) as start:
        pass

    read_only = max(
        at for at, option in enumerate(start.command) if start.command[at - 1 : at + 1] == ["--remount-ro", "/proc"]
    )
    for name in mounts.HIDDEN:
        if Path(f"/proc/{name}").exists():
            assert start.command.index(f"/proc/{name}") < read_only
