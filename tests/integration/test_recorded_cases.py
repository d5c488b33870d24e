"""Runs become cases, and cases run again offline: recorded here, replayed by the command in a process of its own.

All cases of the module are replayed by one command, because its servers take some seconds to start.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from canvas.ids import CanvasId, RunId
from cli.cases import case_file
from cli.cases.case_file import RunCase
from cli.cases.recorder import RecordSource, record_run
from components import registry
from embedded import EmbeddedServers
from providers.models.chat.catalogue import resolve
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle.accept import Start
from store.agents.canvas_secrets import CanvasSecrets
from store.db.database import Database
from store.db.transaction import USE_SNAPSHOT
from store.files.blobs import LocalBlobs
from store.tenants import uploads
from tests.builders import content
from tests.integration.engine import Bench, Run, bench_on
from tests.integration.worker.scripted_vendor import FAILS, KEY, MODEL, ScriptedVendor, calls, said, vendor_of

EASEL = Path(sys.executable).parent / "easel"
STORED = Path(__file__).parents[1] / "recordings" / "runs"
TOOL_KEY = "a key of the tool that nobody guesses"
PASSWORD = "correct horse battery"
SEARCH = {"component": "TavilySearch", "api_key": TOOL_KEY, "query": "{sys.query}"}
FORM = {
    "inputs": {"name": {"type": "line", "name": "Name"}, "secret": {"type": "password", "name": "Password"}},
    "tips": "Who are you?",
}


def llm(prompt: str, **more: Any) -> dict[str, Any]:
    return {"llm_id": MODEL, "prompts": [{"role": "user", "content": prompt}], **more}


def agent(prompt: str) -> dict[str, Any]:
    tool = {"component_name": "TavilySearch", "name": "Search", "params": {"api_key": TOOL_KEY}}
    return {"component": "Agent", "llm_id": MODEL, "sys_prompt": "You search.", "tools": [tool],
            "prompts": [{"role": "user", "content": prompt}]}  # fmt: skip


# -- the recorded runs ------------------------------------------------------------------------------------------------
@dataclass
class Recordings:
    """Records runs of a bench as files, by name."""

    bench: Bench
    folder: Path
    blobs: LocalBlobs
    cases: dict[str, RunCase] = field(default_factory=dict[str, RunCase])

    def add(self, name: str, run: Run | RunId) -> RunCase:
        """Record a run, as the command does."""
        bench, run_id = self.bench, run if not isinstance(run, Run) else run.id
        with bench.database.transaction() as tx:
            tx.execute(USE_SNAPSHOT)
            source = RecordSource(
                tx,
                bench.coordinator.versions,
                bench.tenant_id,
                self.blobs,
                lambda canvas_id: CanvasSecrets.for_canvas(
                    None, bench.tenant_id, CanvasId(canvas_id), registry.secret_fields
                ),
                lambda llm_id: resolve(llm_id, bench.accounts),
            )
            case = record_run(source, run_id, name=name)
        return self.write(name, case)

    def write(self, name: str, case: RunCase) -> RunCase:
        case_file.write_case(case, self.folder / f"{name}.json", most=20_000)
        self.cases[name] = case
        return case

    def text(self, name: str) -> str:
        return (self.folder / f"{name}.json").read_text()


@pytest.fixture(scope="module")
def recordings(
    database: Database, services: EmbeddedServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Recordings]:
    folder = tmp_path_factory.mktemp("cases")
    blobs = LocalBlobs(tmp_path_factory.mktemp("files"))
    with pytest.MonkeyPatch.context() as patch, bench_on(database, services.redis_url, patch) as bench:
        found = Recordings(bench, folder, blobs)
        for record in (
            record_agents, record_failures, record_forms, record_turns, record_other_nodes, record_files,
            record_without_calls, record_choices, record_changes,
        ):  # fmt: skip
            record(found)
        yield found


def play(found: Recordings, served: ScriptedVendor, *parts: str, **options: Any) -> Run:
    bench = found.bench
    bench.accounts = [served.account]
    more = {name: options.pop(name) for name in ("model_calls",) if name in options}
    run = bench.start(*parts, **options)
    bench.play(bench.a_worker(services=served.services, blobs=found.blobs, **more))
    return run


def record_agents(found: Recordings) -> None:
    with vendor_of(calls("prices"), said("They rose ", "by 4%.")) as served:
        nodes = {"model": agent("How are {sys.query}?"), "say": content("{model@content}")}
        run = play(found, served, "begin -> model -> say", **nodes)
        found.add("agent", run)


def record_failures(found: Recordings) -> None:
    with vendor_of(FAILS) as served:
        found.add("failed", play(found, served, "begin -> model", model=llm("Hi", max_retries=0)))


def record_forms(found: Recordings) -> None:
    with vendor_of(said("Fine.")) as served:
        run = play(
            found, served, "begin -> ask -> model -> say",
            ask={"component": "UserFillUp", **FORM}, model=llm("I am {ask@name}: {ask@secret}"),
            say=content("{model@content} {ask@name}"),
        )  # fmt: skip
        found.add("waiting", run)
        answers = {"name": {"value": "Ann"}, "secret": {"value": PASSWORD, "type": "password"}}
        bench = found.bench
        bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query="It is me", inputs=answers))
        bench.play(bench.a_worker(services=served.services))
        found.add("answered", run)


def record_turns(found: Recordings) -> None:
    with vendor_of(said("One."), said("Two.")) as served:
        bench = found.bench
        bench.accounts = [served.account]
        first = bench.a_start("begin -> model -> say", model=llm("{sys.query}"), say=content("{model@content}"))
        run = bench.start_run(first)
        worker = bench.a_worker(services=served.services)
        bench.play(worker)
        second = Start(
            first.tenant_id, first.canvas_id, first.version_id, RunRequest(query="and?"),
            conversation_id=run.conversation_id,
        )  # fmt: skip
        next_run = bench.start_run(second)
        bench.play(worker)
        found.add("second turn", next_run)


def record_other_nodes(found: Recordings) -> None:
    with vendor_of() as served:
        parts = ("begin -> find -> say",)
        found.add("search", play(found, served, *parts, query="prices", find=SEARCH, say=content("{find@json}")))


def record_files(found: Recordings) -> None:
    bench = found.bench
    stored = uploads.store_content(found.blobs, "notes.txt", "text/plain", b"The price is 5.")
    with bench.database.transaction() as tx:
        upload = uploads.register(tx, bench.tenant_id, stored)
    descriptor = {"id": upload.id.hex, "name": "notes.txt", "mime_type": "text/plain", "size": 15}
    with vendor_of(said("Five.")) as served:
        run = play(
            found, served, "begin -> model -> say", files=(descriptor,),
            model=llm("{sys.query} {sys.files}"), say=content("{model@content}"),
        )  # fmt: skip
        found.add("file", run)


def record_without_calls(found: Recordings) -> None:
    for detail in ("usage", "off"):
        with vendor_of(said("Hello.")) as served:
            run = play(
                found, served, "begin -> model -> say", model=llm("Hi"), say=content("He says: {model@content}"),
                model_calls=detail,
            )  # fmt: skip
            found.add(f"calls {detail}", run)


def record_choices(found: Recordings) -> None:
    with vendor_of() as served:
        texts = {"content": [f"text {number}" for number in range(50)]}
        found.add("choice", play(found, served, "begin -> say", say=texts))


def record_changes(found: Recordings) -> None:
    """Cases whose canvas or answers are not what was recorded."""
    model = found.cases["second turn"]
    document = json.loads(json.dumps(model.document))
    document["components"]["model"]["obj"]["params"]["prompts"][0]["content"] = "{sys.query} Be kind."
    found.write("changed prompt", model.model_copy(update={"document": document, "name": "changed prompt"}))
    choice = json.loads(json.dumps(found.cases["choice"].document))
    choice["components"]["begin"]["downstream"] = ["find"]
    choice["components"]["find"] = {
        "obj": {"component_name": "TavilySearch", "params": {"api_key": "x", "query": "{sys.query}"}},
        "upstream": ["begin"],
        "downstream": ["say"],
    }
    choice["components"]["say"]["upstream"] = ["find"]
    found.write("new tool", found.cases["choice"].model_copy(update={"document": choice, "name": "new tool"}))


# -- replays ----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command without any setting of a server or an account."""
    home = tmp_path_factory.mktemp("home")
    environment = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(EASEL), "replay", *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=100, cwd=home,
            env={**environment, "HOME": str(home), "EASEL_HOME": str(home)},
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def verdicts(
    recordings: Recordings,
    replay: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Mapping[str, Mapping[str, Any]]:
    """Replay all cases, those of earlier releases too; return the verdicts by name."""
    file = tmp_path_factory.mktemp("verdicts") / "verdicts.jsonl"
    ended = replay(recordings.folder, STORED, "--json", file, "--jobs", "2")
    assert ended.returncode == 1, ended.stderr
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return {each["name"]: each for each in found}


@pytest.mark.parametrize(
    "name",
    [
        "agent", "failed", "waiting", "answered", "second turn", "search", "file", "calls usage", "calls off", "choice",
    ],
)  # fmt: skip
def test_recorded_run_comes_out_the_same(verdicts: Mapping[str, Mapping[str, Any]], name: str):
    assert verdicts[name]["differences"] == []
    assert verdicts[name]["verdict"] == "same"


@pytest.mark.parametrize("file", sorted(STORED.glob("*.json")), ids=lambda file: file.stem)
def test_case_of_an_earlier_release_comes_out_the_same(verdicts: Mapping[str, Mapping[str, Any]], file: Path):
    name = json.loads(file.read_text())["name"]

    assert verdicts[name]["verdict"] == "same", verdicts[name]["lines"]


def test_replay_of_an_agent_compares_what_its_model_was_asked(recordings: Recordings):
    (step,) = [step for step in recordings.cases["agent"].steps if step.component == "Agent"]

    assert (step.as_recorded, len(step.model_calls), list(step.journal)) == (False, 2, ["call:0:0"])
    assert [call.name for call in step.tool_calls] == ["tavily_search_0"]


@pytest.mark.parametrize(("name", "node"), [("search", "find"), ("calls usage", "model"), ("calls off", "model")])
def test_step_that_cannot_run_offline_is_reported_as_recorded(recordings: Recordings, name: str, node: str):
    recorded = {step.node: step.as_recorded for step in recordings.cases[name].steps}

    assert [each for each, is_as_recorded in recorded.items() if is_as_recorded] == [node]


def test_case_holds_no_secret(recordings: Recordings):
    texts = "".join(file.read_text() for file in recordings.folder.rglob("*.json"))

    for secret in (KEY, TOOL_KEY, PASSWORD):
        assert secret not in texts
    assert "••••" in recordings.text("answered")


def test_case_holds_no_id_of_its_run(recordings: Recordings):
    for name, case in recordings.cases.items():
        text = recordings.text(name).replace(case.recorded.seed, "")
        assert case.recorded.seed.replace("-", "") not in text, name
    assert "<easel:upload:1>" in recordings.text("file")


def test_two_recordings_of_a_run_are_equal(recordings: Recordings):
    case = recordings.cases["agent"]

    assert recordings.add("agent", RunId(UUID(case.recorded.seed))) == case


def test_changed_prompt_is_found_at_its_node(verdicts: Mapping[str, Mapping[str, Any]]):
    (found,) = verdicts["changed prompt"]["differences"]

    assert found["step"] == "model"
    assert found["path"].startswith("model call 1 messages")
    assert found["replayed"].endswith("Be kind.")


def test_step_that_is_not_recorded_fails_and_reaches_nothing(verdicts: Mapping[str, Mapping[str, Any]]):
    found = {(each["step"], each["path"]): each.get("replayed") for each in verdicts["new tool"]["differences"]}

    assert found["find", "step"] == "done"
    assert "replay reaches nothing outside" in found["the run", "error"]


def test_case_replayed_with_another_canvas_expects_what_came_out_once_that_is_accepted(
    recordings: Recordings, replay: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
):
    file, canvas = tmp_path / "case.json", tmp_path / "canvas.json"
    case_file.write_case(recordings.cases["second turn"], file)
    canvas.write_text(json.dumps(recordings.cases["changed prompt"].document))

    accepted, again = replay(file, "--canvas", canvas, "--update"), replay(file)

    assert "Be kind." in accepted.stdout
    assert (accepted.returncode, again.returncode) == (0, 0), accepted.stderr + again.stdout
    assert "as recorded (" in again.stdout


def test_file_that_is_not_a_case_ends_with_code_2(
    replay: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
):
    (tmp_path / "other.json").write_text('{"format": "easel-run/1"}')

    ended = replay(tmp_path / "other.json")

    assert ended.returncode == 2
    assert "other.json is not a case" in ended.stdout


def test_plugin_runs_a_folder_of_cases_as_tests(recordings: Recordings, tmp_path: Path):
    for name in ("agent", "changed prompt"):
        case_file.write_case(recordings.cases[name], tmp_path / "cases" / f"{name}.json")
    (tmp_path / "cases" / "other.json").write_text("{}")
    environment = {**os.environ, "EASEL_HOME": str(tmp_path / "home"), "PYTEST_ADDOPTS": ""}

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--easel-cases", "cases"],
        capture_output=True, text=True, timeout=100, cwd=tmp_path, env=environment,
    )  # fmt: skip

    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "1 failed, 1 passed" in ended.stdout
    assert "Be kind." in ended.stdout


def test_folder_of_cases_that_does_not_exist_is_named(tmp_path: Path):
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--easel-cases", "nowhere"], capture_output=True, text=True, cwd=tmp_path
    )

    assert ended.returncode == 4
    assert "there is no" in ended.stderr
