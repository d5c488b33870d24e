import os
from pathlib import Path

import pytest

from providers.interfaces import ProducedFile, SkippedFile
from providers.sandboxes import produced_files
from providers.sandboxes.produced_files import (
    BAD_NAME,
    MAX_FILE_BYTES,
    MAX_SKIPPED,
    NOT_REGULAR,
    TOO_LARGE,
    UNSUPPORTED_TYPE,
    FileSelection,
    check_files,
    collect_files,
    select_files,
)


def test_files_are_named_by_relative_path_and_sorted(tmp_path: Path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "B.CSV").write_text("1")
    (tmp_path / "b.json").write_text("{}")
    (tmp_path / "a.png").write_bytes(b"\x89")

    assert collect_files(tmp_path).files == [
        ProducedFile("a.png", b"\x89", "image/png"),
        ProducedFile("b.json", b"{}", "application/json"),
        ProducedFile("d/B.CSV", b"1", "text/csv"),
    ]


def test_only_regular_files_of_known_types_are_collected(tmp_path: Path):
    outside = tmp_path / "secret.csv"
    outside.write_text("key")
    folder = tmp_path / "artifacts"
    folder.mkdir()
    (folder / "link.csv").symlink_to(outside)
    (folder / "second.csv").hardlink_to(outside)
    (folder / "linked").symlink_to(tmp_path)
    (folder / "run.sh").write_text("rm")
    os.mkfifo(folder / "pipe.csv")

    selection = collect_files(folder)

    assert selection.files == []
    assert {file.name: file.reason for file in selection.skipped} == {
        "link.csv": NOT_REGULAR,
        "second.csv": NOT_REGULAR,
        "pipe.csv": NOT_REGULAR,
        "run.sh": UNSUPPORTED_TYPE,
    }


def test_symlinked_or_missing_folder_has_no_files(tmp_path: Path):
    (tmp_path / "secret.csv").write_text("key")
    (tmp_path / "artifacts").symlink_to(tmp_path)

    assert collect_files(tmp_path / "artifacts") == FileSelection()
    assert collect_files(tmp_path / "nowhere") == FileSelection()


def test_number_and_total_size_of_files_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(produced_files, "MAX_FILES", 2)
    monkeypatch.setattr(produced_files, "MAX_TOTAL_BYTES", 5)
    files = [ProducedFile(name, data, "text/csv") for name, data in (("a", b"123456"), ("b", b"12"), ("c", b"123"))]

    assert [file.name for file in select_files(files).files] == ["b", "c"]
    assert [file.name for file in select_files(files).skipped] == ["a"]
    assert [file.name for file in select_files(files[1:] + files[1:]).files] == ["b", "c"]


def test_file_that_is_too_large_is_listed_as_skipped(tmp_path: Path):
    (tmp_path / "large.csv").write_bytes(b"1" * (MAX_FILE_BYTES + 1))

    selection = collect_files(tmp_path)

    assert (selection.files, selection.skipped) == ([], [SkippedFile("large.csv", TOO_LARGE)])


@pytest.mark.parametrize("name", ["../a.csv", "/etc/a.csv", "a/../../b.csv", "a\x00.csv", ""])
def test_file_name_that_leaves_the_folder_is_skipped(name: str):
    selection = select_files(check_files([(name, b"1"), ("d/a.csv", b"2")]))

    assert [file.name for file in selection.files] == ["d/a.csv"]
    assert [file.reason for file in selection.skipped] == [BAD_NAME]


def test_list_of_skipped_files_is_limited(tmp_path: Path):
    for number in range(MAX_SKIPPED + 5):
        (tmp_path / f"{number}.exe").touch()

    assert len(collect_files(tmp_path).skipped) == MAX_SKIPPED
