"""`easel migrate` if the database cannot be reached."""

from pathlib import Path

import pytest

import settings
from cli.__main__ import main


def test_migration_of_an_unreachable_database_prints_a_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody:secret@127.0.0.1:1/nothing")
    monkeypatch.setenv("EASEL_HOME", str(tmp_path))
    settings.load.cache_clear()

    with pytest.raises(SystemExit) as exited:
        main(["migrate"])

    settings.load.cache_clear()
    stderr = capsys.readouterr().err
    assert exited.value.code == 1
    assert stderr.startswith("The database cannot be migrated: ")
    assert "Check DATABASE_URL and the server." in stderr
    assert len(stderr.splitlines()) == 1
    assert "secret" not in stderr
