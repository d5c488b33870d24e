"""Run the command `easel` in the process of the test, on a database and a home of the test."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import settings
from cli.__main__ import main
from store.db.database import Database

Easel = Callable[..., tuple[int, str, str]]
"""Arguments -> exit code, stdout and stderr."""

SECRET = "a secret that is long"


@contextmanager
def easel_on(
    database: Database,
    redis_url: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Generator[Easel]:
    """Return a function that runs `easel` with these servers and this home, until the block ends."""
    variables = {
        "DATABASE_URL": database.url,
        "REDIS_URL": redis_url,
        "EASEL_HOME": str(home),
        "EASEL_SECRET_KEY": SECRET,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exited:
            main(list(arguments))
        output = capsys.readouterr()
        return int(exited.value.code or 0), output.out, output.err

    settings.load.cache_clear()
    yield run
    settings.load.cache_clear()
