"""`easel migrate` where no database answers."""

from pathlib import Path

import pytest

import settings
from cli.__main__ import main


def test_migration_of_a_database_that_is_away_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody:secret@127.0.0.1:1/nothing")
    monkeypatch.setenv("EASEL_HOME", str(tmp_path))
    settings.load.cache_clear()

    with pytest.raises(SystemExit) as ended:
        main(["migrate"])

    settings.load.cache_clear()
    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert said.startswith("The database cannot be migrated: ")
    assert "Check DATABASE_URL and the server." in said
    assert len(said.splitlines()) == 1
    assert "secret" not in said
