"""`easel validate`, and the errors of other commands about a bad file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import settings
from cli.__main__ import main

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
CommandResult: TypeAlias = tuple[int, str, str]
Easel: TypeAlias = Callable[..., CommandResult]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an EASEL_HOME that does not exist yet, without settings in the environment."""
    for name in ("DATABASE_URL", "REDIS_URL", "EASEL_DATABASE_URL", "EASEL_REDIS_URL", "EASEL_MODELS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EASEL_HOME", str(tmp_path / "home"))
    settings.load.cache_clear()
    return tmp_path / "home"


@pytest.fixture
def easel(home: Path, capsys: pytest.CaptureFixture[str]) -> Easel:
    """Return a function that runs a command in this process and returns exit code, stdout and stderr."""

    def run_command(*arguments: object) -> CommandResult:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        output = capsys.readouterr()
        return int(ended.value.code or 0), output.out, output.err

    return run_command


def canvas(**changes: Any) -> dict[str, Any]:
    """Return a canvas of Begin and Message, with `changes` to its components."""
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
def test_a_bad_canvas_is_refused_with_exit_code_1_and_its_defect_named(
    easel: Easel, home: Path, tmp_path: Path, content: bytes, named: str
):
    file = tmp_path / "bad.json"
    file.write_bytes(content)

    code, out, _ = easel("validate", file)

    assert code == 1
    assert out.startswith("error    ")
    assert named in out


@pytest.mark.parametrize("command", ["run", "start", "import"])
def test_a_bad_canvas_starts_no_server_and_is_not_stored(easel: Easel, home: Path, tmp_path: Path, command: str):
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(canvas(begin=node("Begin", {}, "Nobody:0"))))

    code, out, err = easel(command, file)

    assert code == 2
    assert out == ""
    assert "Node begin, field downstream: it leads to Nobody:0" in err
    assert not home.exists()


def test_findings_are_listed_one_per_line_errors_first_and_counted(easel: Easel, tmp_path: Path):
    file = tmp_path / "bad.json"
    unconnected = node("Message", {"content": ["{Ghost:0@content}"]})
    drawn = {"nodes": [{"id": "begin", "data": {"name": "Start"}}]}
    bad = canvas(
        begin=node("Begin", {"mode": 3}, "Nobody:0"), **{"Message:1": unconnected, "X:0": node("Teleport", {})}
    )
    file.write_text(json.dumps({**bad, "graph": drawn}))

    code, out, err = easel("validate", file)

    assert code == 1
    assert out.splitlines() == [
        'error    Node "Start" (begin), field downstream: it leads to Nobody:0, which does not exist. '
        "Remove the edge or add the node.",
        'error    Node "Start" (begin), field mode: [Begin] Mode 3 is not supported. '
        "Use one of conversational, task, Webhook.",
        "error    Node X:0: Can't import Teleport.",
        "warning  Node Message:0: no path leads to it from begin, so it never runs. Connect or remove it.",
        "warning  Node Message:1: no path leads to it from begin, so it never runs. Connect or remove it.",
        "warning  Node Message:1, field content[0]: it refers to Ghost:0@content, which does not exist, so it fails. "
        "Correct the name, or add what it names.",
        "warning  Node X:0: no path leads to it from begin, so it never runs. Connect or remove it.",
    ]
    assert err == f"{file}: 3 errors, 4 warnings. It cannot run.\n"


def test_findings_are_json_for_machines(easel: Easel, tmp_path: Path):
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(canvas(begin=node("Begin", {"mode": 3}, "Message:0", "Message:0"))))

    _, out, err = easel("validate", "--json", file)

    (line,) = out.splitlines()
    assert err == ""
    assert json.loads(line) == {
        "file": str(file),
        "severity": "error",
        "node": "begin",
        "field": "mode",
        "message": "Node begin: [Begin] Mode 3 is not supported. Use one of conversational, task, Webhook.",
        "code": "bad_parameter",
    }


@pytest.mark.parametrize(("options", "expected"), [((), 0), (("--strict",), 1)])
def test_warnings_alone_fail_only_with_the_strict_option(
    easel: Easel, tmp_path: Path, options: tuple[str, ...], expected: int
):
    file = tmp_path / "odd.json"
    file.write_text(json.dumps(canvas(**{"Message:1": node("Message", {"content": ["never heard"]})})))

    code, out, err = easel("validate", *options, file)

    assert code == expected
    assert out.startswith("warning  Node Message:1: ")
    assert err == f"{file}: 0 errors, 1 warning. It can run: 3 nodes.\n"


def test_exit_code_for_several_files_is_that_of_the_worst(easel: Easel, tmp_path: Path):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(canvas()))
    bad.write_text("{")

    code, _, err = easel("validate", bad, good)
    unreadable, _, errors = easel("validate", tmp_path / "none.json", bad, good)

    assert code == 1
    assert err.splitlines() == [
        f"{bad}: 1 error, 0 warnings. It cannot run.",
        f"{good}: 0 errors, 0 warnings. It can run: 2 nodes.",
    ]
    assert unreadable == 2
    assert "none.json cannot be read" in errors
    assert f"{good}: 0 errors" in errors


@pytest.fixture
def canvas_with_a_model(tmp_path: Path) -> Path:
    """Return the file of a canvas that names a model of OpenAI."""
    file = tmp_path / "asks.json"
    llm = node("LLM", {"llm_id": "gpt-5@OpenAI", "prompts": [{"role": "user", "content": "{sys.query}"}]})
    file.write_text(json.dumps(canvas(begin=node("Begin", {}, "LLM:0", "Message:0"), **{"LLM:0": llm})))
    return file


def test_models_are_checked_only_if_accounts_are_configured(
    easel: Easel, tmp_path: Path, canvas_with_a_model: Path, monkeypatch: pytest.MonkeyPatch
):
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text('[[account]]\nfactory = "OpenAI"\n')
    other.write_text('[[account]]\nfactory = "Mistral"\n')

    _, unchecked, _ = easel("validate", canvas_with_a_model)
    _, known, _ = easel("validate", "--models", one, canvas_with_a_model)
    code, missing, _ = easel("validate", "--models", other, "--strict", canvas_with_a_model)
    monkeypatch.setenv("EASEL_MODELS_FILE", str(other))
    settings.load.cache_clear()
    _, by_setting, _ = easel("validate", canvas_with_a_model)
    settings.load.cache_clear()

    assert (unchecked, known) == ("", "")
    assert code == 1
    assert missing == by_setting
    assert missing.startswith("warning  Node LLM:0, field llm_id: Provider OpenAI not found for model gpt-5.")


def test_validate_starts_and_stores_nothing(easel: Easel, home: Path, canvas_with_a_model: Path):
    easel("validate", canvas_with_a_model)

    assert not home.exists()


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_our_examples_are_valid_without_a_warning(easel: Easel, example: Path):
    code, out, _ = easel("validate", example)

    assert (code, out) == (0, "")


def test_missing_file_is_bad_input(easel: Easel, tmp_path: Path):
    code, _, err = easel("run", tmp_path / "missing.json")

    assert code == 2
    assert "missing.json cannot be read" in err


def test_invalid_setting_is_bad_input_and_named(easel: Easel, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EASEL_LEASE", "soon")
    settings.load.cache_clear()

    code, _, err = easel("validate", EXAMPLES / "support_triage.json")

    settings.load.cache_clear()
    assert code == 2
    assert "EASEL_LEASE" in err
