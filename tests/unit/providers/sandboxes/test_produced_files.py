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


def test_files_are_named_by_their_place_and_come_in_order(tmp_path: Path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "B.CSV").write_text("1")
    (tmp_path / "b.json").write_text("{}")
    (tmp_path / "a.png").write_bytes(b"\x89")

    assert collect_files(tmp_path).files == [
        ProducedFile("a.png", b"\x89", "image/png"),
        ProducedFile("b.json", b"{}", "application/json"),
        ProducedFile("d/B.CSV", b"1", "text/csv"),
    ]


def test_nothing_but_plain_files_of_known_kinds_is_taken(tmp_path: Path):
    outside = tmp_path / "secret.csv"
    outside.write_text("key")
    folder = tmp_path / "artifacts"
    folder.mkdir()
    (folder / "link.csv").symlink_to(outside)
    (folder / "second.csv").hardlink_to(outside)
    (folder / "linked").symlink_to(tmp_path)
    (folder / "run.sh").write_text("rm")
    os.mkfifo(folder / "pipe.csv")

    found = collect_files(folder)

    assert found.files == []
    assert {file.name: file.reason for file in found.skipped} == {
        "link.csv": NOT_REGULAR,
        "second.csv": NOT_REGULAR,
        "pipe.csv": NOT_REGULAR,
        "run.sh": UNSUPPORTED_TYPE,
    }


def test_a_folder_that_was_made_a_link_holds_nothing(tmp_path: Path):
    (tmp_path / "secret.csv").write_text("key")
    (tmp_path / "artifacts").symlink_to(tmp_path)

    assert collect_files(tmp_path / "artifacts") == FileSelection()
    assert collect_files(tmp_path / "nowhere") == FileSelection()


def test_there_is_a_limit_to_number_and_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(produced_files, "MAX_FILES", 2)
    monkeypatch.setattr(produced_files, "MAX_TOTAL_BYTES", 5)
    files = [ProducedFile(name, data, "text/csv") for name, data in (("a", b"123456"), ("b", b"12"), ("c", b"123"))]

    assert [file.name for file in select_files(files).files] == ["b", "c"]
    assert [file.name for file in select_files(files).skipped] == ["a"]
    assert [file.name for file in select_files(files[1:] + files[1:]).files] == ["b", "c"]


def test_file_that_is_too_large_is_listed_as_skipped(tmp_path: Path):
    (tmp_path / "large.csv").write_bytes(b"1" * (MAX_FILE_BYTES + 1))

    found = collect_files(tmp_path)

    assert (found.files, found.skipped) == ([], [SkippedFile("large.csv", TOO_LARGE)])


@pytest.mark.parametrize("name", ["../a.csv", "/etc/a.csv", "a/../../b.csv", "a\x00.csv", ""])
def test_no_name_that_another_machine_sends_leads_out_of_the_folder(name: str):
    found = select_files(check_files([(name, b"1"), ("d/a.csv", b"2")]))

    assert [file.name for file in found.files] == ["d/a.csv"]
    assert [file.reason for file in found.skipped] == [BAD_NAME]


def test_list_of_skipped_files_is_limited(tmp_path: Path):
    for number in range(MAX_SKIPPED + 5):
        (tmp_path / f"{number}.exe").touch()

    assert len(collect_files(tmp_path).skipped) == MAX_SKIPPED
