import os
from pathlib import Path

import pytest

from providers import produced_files
from providers.produced_files import collected, within_limits
from providers.services import ProducedFile


def test_files_are_named_by_their_place_and_come_in_order(tmp_path: Path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "B.CSV").write_text("1")
    (tmp_path / "b.json").write_text("{}")
    (tmp_path / "a.png").write_bytes(b"\x89")

    assert collected(tmp_path) == [
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

    assert collected(folder) == []


def test_a_folder_that_was_made_a_link_holds_nothing(tmp_path: Path):
    (tmp_path / "secret.csv").write_text("key")
    (tmp_path / "artifacts").symlink_to(tmp_path)

    assert collected(tmp_path / "artifacts") == []
    assert collected(tmp_path / "nowhere") == []


def test_there_is_a_limit_to_number_and_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(produced_files, "MOST_FILES", 2)
    monkeypatch.setattr(produced_files, "MOST_BYTES", 5)
    files = [ProducedFile(name, data, "text/csv") for name, data in (("a", b"123456"), ("b", b"12"), ("c", b"123"))]

    assert [file.name for file in within_limits(files)] == ["b", "c"]
    assert [file.name for file in within_limits(files[1:] + files[1:])] == ["b", "c"]
