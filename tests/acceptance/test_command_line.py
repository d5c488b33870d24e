"""`easel` as people and scripts use it: real processes, in homes of their own."""

import http.client
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.acceptance.conftest import PATIENCE, ROOT, Easel, new_home, runner, started

TRIAGE = ROOT / "examples" / "support_triage.json"
RETURNS = ROOT / "examples" / "return_form.json"
QUERY = "My invoice is wrong: I was charged twice"


@pytest.fixture
def alone() -> Iterator[Easel]:
    """`easel` in a home where nothing runs."""
    with new_home() as home:
        yield runner(home)


@pytest.fixture
def easel(up: Path) -> Easel:
    """`easel` in the home in which `easel up` runs."""
    return runner(up)


def ids_told(told: str) -> tuple[str, str]:
    """(run, session) from what a run told on stderr."""
    found = re.search(r"run (\w{32})  session (\w{32})", told)
    assert found, told
    return found[1], found[2]


def wait_for(seen: Callable[[], Any]) -> Any:
    give_up = time.monotonic() + PATIENCE
    while not (found := seen()):
        assert time.monotonic() < give_up
        time.sleep(0.05)
    return found


def test_a_first_run_needs_nothing_and_answers_with_routing_a_join_and_an_iteration(alone: Easel):
    first = alone("run", TRIAGE, "--query", QUERY)
    second = alone("runs", "--json")

    assert first.returncode == 0, first.stderr
    assert "- My invoice is wrong: we check this within two days\n- I was charged twice: we" in first.stdout
    assert "Invoice case, opened" in first.stdout
    assert "model: echo (built in, no real model)" in first.stderr
    assert re.search(r"^✓ Categorize:Triage support_triage \(\d+\.\d s\)$", first.stderr, re.MULTILINE)
    assert first.stderr.count("✓ LLM:Check check") == 2
    assert "✓ Message:Other" not in first.stderr
    (row,) = map(json.loads, second.stdout.splitlines())
    assert (row["status"], row["agent"], row["query"]) == ("succeeded", "support_triage", QUERY)


def test_a_run_that_waits_exits_with_4_and_goes_on_with_the_answers(easel: Easel):
    asked = easel("run", RETURNS)
    run, _ = ids_told(asked.stderr)
    answered = easel("resume", run, "--input", "order=77", "--inputs", '{"reason": "damaged"}')
    again = easel("resume", run, "--input", "order=78")

    assert asked.returncode == 4
    assert asked.stdout == ""
    assert "order  (line)  Order number" in asked.stderr
    assert f"easel resume {run} --input order=… --input reason=…" in asked.stderr
    assert answered.returncode == 0, answered.stderr
    assert answered.stdout == "Order 77 was damaged, so you get your money back. Keep the goods.\n"
    assert again.returncode == 2
    assert "does not wait" in again.stderr


def test_machines_get_every_event_as_json_and_the_same_events_later(easel: Easel):
    lively = easel("run", TRIAGE, "-q", "technical question", "--json")
    run, _ = ids_told(lively.stderr)
    later = easel("events", run, "--json")

    seen = [json.loads(line) for line in lively.stdout.splitlines()]
    assert lively.returncode == 0
    assert seen[0]["event"] == "workflow_started"
    assert seen[-1]["event"] == "workflow_finished"
    assert {event["run_id"] for event in seen} == {run}
    text = "".join(event["data"]["content"] for event in seen if event["event"] == "message")
    assert 'Your report: "technical question"' in text
    stored = [json.loads(line) for line in later.stdout.splitlines()]
    assert [event for event in stored if event["event"] != "message"] == [
        event for event in seen if event["event"] != "message"
    ]


def test_a_session_continues(easel: Easel):
    first = easel("run", TRIAGE, "-q", "Hello")
    _, session = ids_told(first.stderr)
    second = easel("run", TRIAGE, "-q", "Hello again", "--session", session)
    foreign = easel("run", TRIAGE, "--session", "0" * 32)

    assert second.returncode == 0, second.stderr
    assert ids_told(second.stderr)[1] == session
    assert 'your message: "Hello again"' in second.stdout
    assert foreign.returncode == 2


def test_a_started_run_is_carried_out_shown_and_listed(easel: Easel):
    agent = easel("import", TRIAGE, "--title", "Triage", "--publish").stdout.strip()
    run = easel("start", "triage", "--release", "-q", QUERY).stdout.strip()
    followed = easel("events", run, "--follow")
    shown = easel("show", run)
    explained = [easel("explain", run), easel("explain", run, "--json"), easel("explain", "0" * 32)]
    listed = easel("runs", "--agent", agent, "--json")

    assert explained[0].stdout == "The run has succeeded.\n"
    assert json.loads(explained[1].stdout)["waits_for"] == "over"
    assert explained[2].returncode == 2
    assert followed.returncode == 0
    assert "workflow_finished" in followed.stdout.splitlines()[-1]
    assert "LLM:Check  check" in shown.stdout
    assert shown.stdout.index("item 0") < shown.stdout.index("item 1")
    assert all(json.loads(line)["id"] == json.loads(line)["run"] for line in listed.stdout.splitlines())
    assert [json.loads(line)["run"] for line in listed.stdout.splitlines()] == [run]


@pytest.fixture
def slow_canvas(up: Path) -> Path:
    """A canvas whose model takes longer than anybody waits."""
    nodes = {
        "begin": ("Begin", {}, ["LLM:0"]),
        "LLM:0": ("LLM", {"llm_id": "scripted"}, ["Message:0"]),
        "Message:0": ("Message", {"content": ["{LLM:0@content}"]}, []),
    }
    components = {
        node_id: {"obj": {"component_name": name, "params": params}, "downstream": downstream}
        for node_id, (name, params, downstream) in nodes.items()
    }
    file = up.parent / "slow.json"
    file.write_text(json.dumps({"components": components}))
    return file


def test_ctrl_c_cancels_the_run(up: Path, slow_canvas: Path):
    with started(up, "run", slow_canvas, "-q", "Hi") as process:
        assert process.stderr
        while "✓ begin" not in process.stderr.readline():
            assert process.poll() is None

        process.send_signal(signal.SIGINT)
        out, told = process.communicate(timeout=PATIENCE)

    assert process.returncode == 3
    assert out == ""
    assert "cancelled" in told


def test_cancel_stops_a_run_that_somebody_else_follows(up: Path, easel: Easel, slow_canvas: Path):
    with started(up, "run", slow_canvas, "-q", "Hi") as process:
        assert process.stderr
        run, _ = ids_told(process.stderr.readline())
        wait_for(lambda: "▸  LLM:0" in easel("show", run).stdout)

        cancelled = easel("cancel", run)
        assert cancelled.returncode == 0, cancelled.stderr
        process.communicate(timeout=PATIENCE)

    assert cancelled.stdout.strip() in ("stopping", "cancelled")
    assert process.returncode == 3
    assert easel("cancel", run).stdout == "cancelled\n"


def test_a_failed_run_exits_with_1_and_says_why(easel: Easel, tmp_path: Path):
    canvas = json.loads(RETURNS.read_text())
    components = canvas["dsl"]["components"]
    components["begin"]["downstream"] = ["Switch:Reason"]
    components["Switch:Reason"]["obj"]["params"]["conditions"][0]["items"][0]["cpn_id"] = "Nobody:0@reason"
    file = tmp_path / "broken.json"
    file.write_text(json.dumps(canvas))

    failed = easel("run", file)

    assert failed.returncode == 1
    assert "✗ Switch:Reason damaged?: " in failed.stderr
    assert "failed: " in failed.stderr


def test_the_token_of_up_opens_the_api_until_it_is_revoked(up: Path, easel: Easel):
    state = json.loads((up / "up.json").read_text())

    def status(token: str) -> int:
        with closing(http.client.HTTPConnection(urlsplit(state["url"]).netloc, timeout=PATIENCE)) as api:
            api.request("GET", "/api/v1/runs", headers={"Authorization": f"Bearer {token}"})
            return api.getresponse().status

    made = json.loads(easel("tokens", "create", "--name", "mine", "--json").stdout)

    assert status(state["token"]) == 200
    assert status(made["token"]) == 200
    easel("tokens", "revoke", made["id"])
    assert status(made["token"]) == 401


def test_the_doctor_finds_nothing_wrong_with_up(easel: Easel):
    def examined() -> Sequence[Mapping[str, str]] | None:
        ended = easel("doctor", "--json")
        return [json.loads(line) for line in ended.stdout.splitlines()] if ended.returncode == 0 else None

    found = wait_for(examined)

    assert {"python", "database", "migrations", "redis", "broker", "workers", "sweeper", "models"} <= {
        finding["about"] for finding in found
    }
    assert {finding["level"] for finding in found} <= {"OK", "WARN"}


def test_a_second_up_of_the_same_home_is_refused(up: Path, easel: Easel):
    refused = easel("up", "--port", "0")

    assert refused.returncode == 2
    assert json.loads((up / "up.json").read_text())["url"] in refused.stderr


def test_a_key_is_read_from_stdin_and_never_shown(easel: Easel):
    limits = ("--requests-per-minute", "60", "--concurrency", "4")
    added = easel("models", "add", "OpenAI", "--model", "gpt-5", *limits, given="sk-very-secret\n")
    listed = easel("models", "list")
    removed = easel("models", "remove", "OpenAI")

    assert added.returncode == 0, added.stderr
    assert "gpt-5" in listed.stdout
    assert "60 requests a minute, 4 at once" in listed.stdout
    assert "very-secret" not in added.stdout + added.stderr + listed.stdout
    assert removed.returncode == 0
    assert easel("models", "remove", "OpenAI").returncode == 2


def test_builtin_model_is_labelled_and_model_without_account_is_refused(easel: Easel):
    answered = easel("models", "test", "echo")
    missing = easel("models", "test", "gpt-5@OpenAI")

    assert answered.returncode == 0
    assert "a built-in model and no real one" in answered.stderr
    assert missing.returncode == 1
    assert "OpenAI" in missing.stderr


def test_a_killed_up_leaves_no_process_behind():
    with new_home() as home, started(home, "up", "--port", "0") as process:
        assert process.stdout
        assert process.stdout.readline().startswith("ready ")
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True).stdout

        process.kill()
        process.wait()

        assert len(children.split()) >= 6  # API, worker, scheduler, sweeper, PostgreSQL, Valkey
        wait_for(lambda: not any(Path("/proc", pid).exists() for pid in children.split()))
