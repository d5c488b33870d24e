"""`easel validate` and what every command says about a bad file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import settings
from cli.__main__ import main

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
Ended: TypeAlias = tuple[int, str, str]
Easel: TypeAlias = Callable[..., Ended]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which nothing has happened yet."""
    for name in ("DATABASE_URL", "REDIS_URL", "EASEL_DATABASE_URL", "EASEL_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EASEL_HOME", str(tmp_path / "home"))
    settings.load.cache_clear()
    return tmp_path / "home"


@pytest.fixture
def easel(home: Path, capsys: pytest.CaptureFixture[str]) -> Easel:
    """Carry out a command in this process: its exit code, stdout and stderr."""

    def carry_out(*arguments: object) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return carry_out


def canvas(**changes: Any) -> dict[str, Any]:
    """Begin, then a Message; with other components where some are given."""
    components = {
        "begin": {"obj": {"component_name": "Begin", "params": {}}, "downstream": ["Message:0"], "upstream": []},
        "Message:0": {
            "obj": {"component_name": "Message", "params": {"content": ["Hi"]}},
            "downstream": [],
            "upstream": ["begin"],
        },
    }
    return {"components": {**components, **changes}}


def node(component: str, params: dict[str, Any], *downstream: str) -> dict[str, Any]:
    return {"obj": {"component_name": component, "params": params}, "downstream": list(downstream), "upstream": []}


BAD = {
    "not JSON": (b"{", "JSON"),
    "empty": (b"", "JSON"),
    "not an object": (b"[]", "object"),
    "not UTF-8": (b'{"components": {"\xff": 1}}', "JSON"),
    "nested too deep": (b'{"components": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}", "nested deeper"),
    "too large": (b" " * (8 * 1024 * 1024 + 1) + b"{}", "EASEL_MAX_CANVAS_BYTES"),
    "NaN": (json.dumps(canvas(begin=node("Begin", {"x": float("nan")}))).encode(), "x"),
    "half of a surrogate pair": (json.dumps(canvas(begin=node("Begin", {"x": "\ud800"}))).encode(), "surrogate"),
    "without begin": (
        json.dumps({"components": {"Message:0": node("Message", {"content": ["Hi"]})}}).encode(),
        "begin",
    ),
    "unknown component": (json.dumps(canvas(**{"X:0": node("Teleport", {})})).encode(), "X:0"),
    "edge to nowhere": (json.dumps(canvas(begin=node("Begin", {}, "Nobody:0"))).encode(), "Nobody:0"),
    "components of a wrong type": (b'{"components": [1]}', "components"),
    "params of a wrong type": (json.dumps(canvas(begin=node("Begin", []))).encode(), "params"),  # type: ignore[arg-type] (the mistake under test)
    "parameter of a wrong type": (json.dumps(canvas(begin=node("Begin", {"mode": 3}))).encode(), "mode"),
}


@pytest.mark.parametrize(("content", "named"), BAD.values(), ids=BAD.keys())
def test_a_bad_canvas_is_refused_with_exit_code_2_and_its_defect_named(
    easel: Easel, home: Path, tmp_path: Path, content: bytes, named: str
):
    file = tmp_path / "bad.json"
    file.write_bytes(content)

    code, out, _ = easel("validate", file)

    assert code == 2
    assert named in out


@pytest.mark.parametrize("command", ["run", "start", "import"])
def test_a_bad_canvas_starts_no_server_and_is_not_stored(easel: Easel, home: Path, tmp_path: Path, command: str):
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(canvas(begin=node("Begin", {}, "Nobody:0"))))

    code, out, err = easel(command, file)

    assert code == 2
    assert out == ""
    assert "begin, downstream" in err
    assert "Nobody:0" in err
    assert not home.exists()


def test_every_finding_is_printed_errors_apart_from_warnings(easel: Easel, tmp_path: Path):
    file = tmp_path / "bad.json"
    lonely = node("Message", {"content": ["{Ghost:0@content}"]})
    file.write_text(json.dumps(canvas(begin=node("Begin", {"mode": 3}, "Nobody:0"), **{"Message:1": lonely})))

    code, out, _ = easel("validate", file)
    _, lines, _ = easel("validate", "--json", file)

    errors, warnings = out.split("Warnings")
    assert code == 2
    assert "begin, downstream" in errors
    assert "begin, mode" in errors
    assert "Message:1" in warnings
    assert "Ghost:0@content" in warnings
    findings = [json.loads(line) for line in lines.splitlines()]
    assert {finding["severity"] for finding in findings} == {"error", "warning"}
    assert {"node": "begin", "field": "mode"}.items() <= findings[1].items()


def test_warnings_alone_do_not_refuse_a_canvas(easel: Easel, tmp_path: Path):
    file = tmp_path / "odd.json"
    file.write_text(json.dumps(canvas(**{"Message:1": node("Message", {"content": ["never heard"]})})))

    code, out, _ = easel("validate", file)

    assert code == 0
    assert "Message:1" in out


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_our_examples_are_valid_without_a_warning(easel: Easel, example: Path):
    code, out, _ = easel("validate", example)

    assert (code, out) == (0, "")


def test_a_file_that_is_not_there_is_bad_input(easel: Easel, tmp_path: Path):
    code, _, err = easel("run", tmp_path / "missing.json")

    assert code == 2
    assert "missing.json cannot be read" in err


def test_settings_that_cannot_work_are_bad_input_and_named(easel: Easel, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EASEL_LEASE", "soon")
    settings.load.cache_clear()

    code, _, err = easel("validate", EXAMPLES / "support_triage.json")

    settings.load.cache_clear()
    assert code == 2
    assert "EASEL_LEASE" in err
