"""The list of equivalent mutants: each entry names a line that exists, once."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = tomllib.loads((Path(__file__).parent / "survivors.toml").read_text())["survivor"]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry['path']} {entry['operator']}")
def test_entry_has_a_reason_and_its_line_is_in_the_file(entry: dict[str, str]):
    lines = [line.strip() for line in (ROOT / entry["path"]).read_text().splitlines()]

    assert lines.count(entry["line"]) == 1
    assert entry["reason"].strip()


def test_entries_are_different():
    keys = [(entry["path"], entry["operator"], entry["line"]) for entry in ENTRIES]

    assert len(set(keys)) == len(keys)
