"""Events that a subscriber of Redis has missed are read over HTTP with the code of docs/events.md."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, Client

ROOT = Path(__file__).parents[3]
USE = """
events = {number: {} for number in json.loads(os.environ["RECEIVED"])}
fill(os.environ["RUN_ID"], events, int(os.environ["STORED"]))
print(json.dumps({number: frame.get("event") for number, frame in sorted(events.items()) if frame}))
"""


def test_documented_code_reads_the_events_that_did_not_come(client: Client, server: Server) -> None:
    run_id = client.start(client.agent(ECHO))["run_id"]
    client.wait_for(run_id, "succeeded")
    frames = [frame for frame in client.http.get(f"/api/v1/runs/{run_id}/events").json()["events"] if "seq" in frame]
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "events.md").read_text(), re.DOTALL)[1]
    environment = {
        "EASEL_URL": server.url,
        "EASEL_TOKEN": client.token,
        "RUN_ID": run_id,
        "RECEIVED": "[1, 3]",
        "STORED": str(len(frames)),
        "PATH": os.environ["PATH"],
    }

    completed = subprocess.run(
        [sys.executable, "-c", code + USE], env=environment, cwd="/", capture_output=True, text=True, timeout=60
    )

    assert completed.returncode == 0, completed.stderr
    read = {int(number): name for number, name in json.loads(completed.stdout).items()}
    assert read == {frame["seq"]: frame["event"] for frame in frames if frame["seq"] > 1}
