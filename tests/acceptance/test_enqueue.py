"""Another service enqueues runs with the code of docs/enqueue.md; the command line shows the results."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from cli.shell import home
from tests.acceptance.conftest import ROOT, TIMEOUT, Easel, runner

SENDER, READER, BY_KOMBU = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "enqueue.md").read_text(), re.DOTALL)
DSL = {
    "components": {
        "begin": {"obj": {"component_name": "Begin", "params": {}}, "downstream": ["Message:0"]},
        "Message:0": {"obj": {"component_name": "Message", "params": {"content": ["You said: {sys.query}"]}}},
    }
}


@pytest.fixture
def easel(up: Path) -> Easel:
    return runner(up)


def run_as_documented(code: str, environment: dict[str, str]) -> str:
    """Run code in a process without Easel; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd="/", capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_documented_code_starts_runs_from_another_service_and_reads_their_results(easel: Easel, up: Path):
    up_state = home.find_running_up(up)
    assert up_state is not None
    environment = {
        "PATH": os.environ["PATH"],
        "BROKER_URL": up_state.redis_url,
        "EASEL_URL": up_state.url,
        "EASEL_TOKEN": up_state.token,
        "AGENT_ID": create_agent(up_state),
    }

    run_as_documented(SENDER, environment)
    assert run_as_documented(READER, environment) == "succeeded You said: Hello\n"

    misspelt = SENDER.replace('query="Hello"', 'qurey="Hello"').replace("order-4711", "order-4712")
    run_as_documented(misspelt, environment)
    output = run_as_documented(READER.replace("order-4711", "order-4712"), environment)
    assert output.startswith(
        "refused There is no option 'qurey'. Did you mean \"query\"? The options are: query, inputs,"
    )

    shown = easel("show", "order-4711")
    assert "external id order-4711" in shown.stdout
    assert "Message:0" in shown.stdout
    refused = easel("show", "order-4712")
    assert (refused.returncode, "error: There is no option 'qurey'." in refused.stdout) == (0, True)
    (row,) = map(json.loads, easel("runs", "--status", "refused", "--json").stdout.splitlines())
    assert (row["external_id"], row["status"], row["session"]) == ("order-4712", "refused", None)
    assert "order-4712" in easel("runs").stdout
    assert easel("explain", "order-4712").stdout.startswith("The start was refused, and no node has run: There is no")
    assert easel("events", "order-4711").returncode == easel("events", "order-4712").returncode == 0
    assert easel("cancel", "order-4712").stdout == "it was over already: refused\n"
    assert easel("cancel", "order-4711").stdout == "it was over already: succeeded\n"
    answered = easel("resume", "order-4712", "--query", "Hello")
    assert answered.returncode == 2
    assert "does not wait" in answered.stderr
    unknown = easel("show", "order-4713")
    assert (unknown.returncode, "There is no run order-4713." in unknown.stderr) == (2, True)


def test_documented_code_without_celery_starts_a_run(easel: Easel, up: Path):
    up_state = home.find_running_up(up)
    assert up_state is not None
    environment = {
        "PATH": os.environ["PATH"],
        "BROKER_URL": up_state.redis_url,
        "EASEL_URL": up_state.url,
        "EASEL_TOKEN": up_state.token,
        "AGENT_ID": create_agent(up_state, "Repeats again"),
    }

    run_as_documented(BY_KOMBU, environment)

    output = run_as_documented(READER.replace("order-4711", "order-4714"), environment)
    assert output == "succeeded You said: Hello\n"


@pytest.mark.parametrize("command", ["start", "run"])
def test_misspelt_command_option_is_refused_with_the_correct_one(easel: Easel, command: str):
    ended = easel(command, "agent", "--qurey", "Hello")

    assert ended.returncode == 2
    assert "--qurey" in ended.stderr
    assert "--query" in ended.stderr


def create_agent(up_state: home.Up, title: str = "Repeats") -> str:
    """Create an agent of the local tenant that repeats its query; return its id."""
    body = json.dumps({"title": title, "dsl": DSL}).encode()
    headers = {"Authorization": f"Bearer {up_state.token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{up_state.url}/api/v1/agents", body, headers)
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["data"]["id"]
