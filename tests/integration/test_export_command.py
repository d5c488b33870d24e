"""`easel export` on a real database."""

import json
from pathlib import Path

import pytest

from cli.__main__ import main
from tests.integration.api.talking import ECHO


@pytest.fixture(autouse=True)
def servers(module_database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the servers that the commands use."""
    monkeypatch.setenv("EASEL_HOME", str(tmp_path))
    monkeypatch.setenv("DATABASE_URL", module_database_url)
    monkeypatch.setenv("REDIS_URL", redis_url)


def easel(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run a command; return its exit code and stdout."""
    with pytest.raises(SystemExit) as exited:
        main(arguments)
    return int(exited.value.code or 0), capsys.readouterr().out


def test_exported_canvas_has_a_drawing_and_can_be_imported_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    without_graph = {name: part for name, part in ECHO.items() if name != "graph"}
    (tmp_path / "undrawn.json").write_text(json.dumps(without_graph))
    easel(capsys, "import", str(tmp_path / "undrawn.json"), "--title", "Undrawn")

    _, exported = easel(capsys, "export", "undrawn")
    (tmp_path / "exported.json").write_text(exported)
    easel(capsys, "import", str(tmp_path / "exported.json"), "--title", "Again")

    canvas = json.loads(exported)
    assert {node["id"] for node in canvas["graph"]["nodes"]} == set(canvas["components"]) == set(ECHO["components"])
    assert easel(capsys, "export", "again") == (0, exported)


def test_published_version_is_exported_with_the_release_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "echo.json").write_text(json.dumps(ECHO))
    easel(capsys, "import", str(tmp_path / "echo.json"), "--title", "Draft only")
    easel(capsys, "import", str(tmp_path / "echo.json"), "--title", "Published", "--publish")

    unpublished, _ = easel(capsys, "export", "Draft only", "--release")
    published, exported = easel(capsys, "export", "Published", "--release")

    assert (unpublished, published) == (2, 0)
    assert set(json.loads(exported)["components"]) == set(ECHO["components"])
