"""`easel` on the command line: real processes in temporary homes."""

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

from tests.acceptance.conftest import ROOT, TIMEOUT, Easel, background_command, new_home, runner

TRIAGE = ROOT / "examples" / "support_triage.json"
RETURNS = ROOT / "examples" / "return_form.json"
QUERY = "My invoice is wrong: I was charged twice"


@pytest.fixture
def easel_without_up() -> Iterator[Easel]:
    """`easel` in a home without a running `easel up`."""
    with new_home() as home:
        yield runner(home)


@pytest.fixture
def easel(up: Path) -> Easel:
    """`easel` in the home with a running `easel up`."""
    return runner(up)


def parse_ids(stderr: str) -> tuple[str, str]:
    """Return (run, session) from the stderr of a run."""
    found = re.search(r"run (\w{32})  session (\w{32})", stderr)
    assert found, stderr
    return found[1], found[2]


def wait_for(fact: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + TIMEOUT
    while not (found := fact()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_first_run_answers_without_setup_through_routing_join_and_iteration(easel_without_up: Easel):
    first = easel_without_up("run", TRIAGE, "--query", QUERY)
    second = easel_without_up("runs", "--json")

    assert first.returncode == 0, first.stderr
    assert "- My invoice is wrong: we check this within two days\n- I was charged twice: we" in first.stdout
    assert "Invoice case, opened" in first.stdout
    assert "model: echo (built in, no real model)" in first.stderr
    assert re.search(r"^✓ Categorize:Triage support_triage \(\d+\.\d s\)$", first.stderr, re.MULTILINE)
    assert first.stderr.count("✓ LLM:Check check") == 2
    assert "✓ Message:Other" not in first.stderr
    (row,) = map(json.loads, second.stdout.splitlines())
    assert (row["status"], row["agent"], row["query"]) == ("succeeded", "support_triage", QUERY)


def test_waiting_run_exits_with_4_and_resume_continues_it(easel: Easel):
    first = easel("run", RETURNS)
    run, _ = parse_ids(first.stderr)
    answered = easel("resume", run, "--input", "order=77", "--inputs", '{"reason": "damaged"}')
    again = easel("resume", run, "--input", "order=78")

    assert first.returncode == 4
    assert first.stdout == ""
    assert "order  (line)  Order number" in first.stderr
    assert f"easel resume {run} --input order=… --input reason=…" in first.stderr
    assert answered.returncode == 0, answered.stderr
    assert answered.stdout == "Order 77 was damaged, so you get your money back. Keep the goods.\n"
    assert again.returncode == 2
    assert "does not wait" in again.stderr


@pytest.mark.long
def test_debug_runs_one_node_alone_and_prints_its_outputs(easel: Easel):
    form = easel("debug", RETURNS, "UserFillUp:Order", "--input", "order=77", "--inputs", '{"reason": "damaged"}')
    listed = easel("debug", "return_form", "UserFillUp:Order", "--input", "order=78", "--json")
    unknown = easel("debug", "return_form", "Nobody:0")

    assert form.returncode == 0, form.stderr
    outputs = json.loads(form.stdout)
    assert (outputs["order"], outputs["reason"]) == ("77", "damaged")
    assert "0 model calls, 0 tokens" in form.stderr
    whole = json.loads(listed.stdout)
    assert (whole["status"], whole["outputs"]["order"], whole["outputs"]["reason"]) == ("succeeded", "78", None)
    assert unknown.returncode == 2
    assert "has no node 'Nobody:0'. It has: begin" in unknown.stderr


def test_json_output_contains_every_event_and_matches_the_stored_events(easel: Easel):
    live = easel("run", TRIAGE, "-q", "technical question", "--json")
    run, _ = parse_ids(live.stderr)
    later = easel("events", run, "--json")

    events = [json.loads(line) for line in live.stdout.splitlines()]
    assert live.returncode == 0
    assert events[0]["event"] == "workflow_started"
    assert events[-1]["event"] == "workflow_finished"
    assert {event["run_id"] for event in events} == {run}
    text = "".join(event["data"]["content"] for event in events if event["event"] == "message")
    assert 'Your report: "technical question"' in text
    stored = [json.loads(line) for line in later.stdout.splitlines()]
    assert [event for event in stored if event["event"] != "message"] == [
        event for event in events if event["event"] != "message"
    ]


@pytest.mark.long
def test_session_option_continues_the_conversation(easel: Easel):
    first = easel("run", TRIAGE, "-q", "Hello")
    _, session = parse_ids(first.stderr)
    second = easel("run", TRIAGE, "-q", "Hello again", "--session", session)
    foreign = easel("run", TRIAGE, "--session", "0" * 32)

    assert second.returncode == 0, second.stderr
    assert parse_ids(second.stderr)[1] == session
    assert 'your message: "Hello again"' in second.stdout
    assert foreign.returncode == 2


def test_started_run_is_executed_shown_explained_and_listed(easel: Easel):
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


def test_model_calls_of_a_run_are_listed_and_shown(easel: Easel):
    easel("import", TRIAGE, "--title", "Triage", "--publish")
    run = easel("start", "triage", "--release", "-q", QUERY).stdout.strip()
    easel("events", run, "--follow")

    table = easel("calls", run)
    rows = [json.loads(line) for line in easel("calls", run, "--json").stdout.splitlines()]
    shown = easel("calls", run, rows[0]["id"])
    unknown = easel("calls", run, "0" * 32)

    assert table.stdout.splitlines()[0].split()[:3] == ["id", "round", "kind"]
    assert len(table.stdout.splitlines()) == 1 + len(rows)
    assert {row["status"] for row in rows} == {"ok"}
    call = json.loads(shown.stdout)
    assert call["request"]["messages"][-1]["role"] == "user"
    assert call["response"]["role"] == "assistant"
    assert (unknown.returncode, unknown.stdout) == (2, "")


@pytest.fixture
def slow_canvas(up: Path) -> Path:
    """A canvas whose model answers after two minutes."""
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
    with background_command(up, "run", slow_canvas, "-q", "Hi") as process:
        assert process.stderr
        while "✓ begin" not in process.stderr.readline():
            assert process.poll() is None

        process.send_signal(signal.SIGINT)
        out, stderr = process.communicate(timeout=TIMEOUT)

    assert process.returncode == 3
    assert out == ""
    assert "cancelled" in stderr


def test_cancel_command_stops_a_run_that_another_process_follows(up: Path, easel: Easel, slow_canvas: Path):
    with background_command(up, "run", slow_canvas, "-q", "Hi") as process:
        assert process.stderr
        run, _ = parse_ids(process.stderr.readline())
        wait_for(lambda: "▸  LLM:0" in easel("show", run).stdout)

        cancelled = easel("cancel", run)
        assert cancelled.returncode == 0, cancelled.stderr
        process.communicate(timeout=TIMEOUT)

    assert cancelled.stdout.strip() in ("stopping", "cancelled")
    assert process.returncode == 3
    assert easel("cancel", run).stdout == "cancelled\n"


def test_failed_run_exits_with_1_and_prints_the_reason(easel: Easel, tmp_path: Path):
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


def test_api_token_is_accepted_until_it_is_revoked(up: Path, easel: Easel):
    state = json.loads((up / "up.json").read_text())

    def status(token: str) -> int:
        with closing(http.client.HTTPConnection(urlsplit(state["url"]).netloc, timeout=TIMEOUT)) as api:
            api.request("GET", "/api/v1/runs", headers={"Authorization": f"Bearer {token}"})
            return api.getresponse().status

    created = json.loads(easel("tokens", "create", "--name", "mine", "--json").stdout)

    assert status(state["token"]) == 200
    assert status(created["token"]) == 200
    easel("tokens", "revoke", created["id"])
    assert status(created["token"]) == 401


def test_printed_address_of_the_pages_signs_in_once(up: Path, easel: Easel):  # T013
    url = json.loads((up / "up.json").read_text())["url"]

    def sign_in(code: str) -> int:
        with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT)) as api:
            api.request("POST", "/api/v1/viewer/session", json.dumps({"code": code}))
            return api.getresponse().status

    printed = easel("view", "--print")

    address, _, code = printed.stdout.strip().partition("#c=")
    assert (printed.returncode, address) == (0, f"{url}/")
    assert [sign_in(code), sign_in(code)] == [204, 401]


def test_doctor_reports_no_failure_while_easel_up_runs(easel: Easel):
    def doctor_findings() -> Sequence[Mapping[str, str]] | None:
        ended = easel("doctor", "--json")
        return [json.loads(line) for line in ended.stdout.splitlines()] if ended.returncode == 0 else None

    found = wait_for(doctor_findings)

    assert {"python", "database", "migrations", "redis", "broker", "workers", "sweeper", "models"} <= {
        finding["about"] for finding in found
    }
    assert {finding["level"] for finding in found} <= {"OK", "WARN"}


def test_second_easel_up_in_the_same_home_is_refused(up: Path, easel: Easel):
    refused = easel("up", "--port", "0")

    assert refused.returncode == 2
    assert json.loads((up / "up.json").read_text())["url"] in refused.stderr


def test_model_key_is_read_from_stdin_and_never_printed(easel: Easel):
    limits = ("--requests-per-minute", "60", "--concurrency", "4")
    added = easel("models", "add", "OpenAI", "--model", "gpt-5", *limits, stdin="sk-very-secret\n")
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


def test_killed_easel_up_leaves_no_child_process_running():
    with new_home() as home, background_command(home, "up", "--port", "0") as process:
        assert process.stdout
        assert process.stdout.readline().startswith("ready ")
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True).stdout

        process.kill()
        process.wait()

        assert len(children.split()) >= 6  # API, worker, scheduler, sweeper, PostgreSQL, Valkey
        wait_for(lambda: not any(Path("/proc", pid).exists() for pid in children.split()))
