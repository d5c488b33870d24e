"""Requests that schemathesis makes of the OpenAPI document: none may be answered with an internal error."""

import subprocess

from tests.contract.tools import ROOT, deployment, tool

CHECKS = "not_a_server_error,response_schema_conformance,content_type_conformance"
LEFT_OUT = (  # they end the token, wait for something, or answer with streams
    "/api/v1/viewer/session",
    "/api/v1/tokens/{token_id}",
    "/api/v1/runs/{run_id}/live",
)


def fuzz(examples: int, seed: int) -> bool:
    """Return whether no request was answered with a 500, or with another form than the document says."""
    with deployment() as running:
        ended = subprocess.run(
            [str(tool("schemathesis")), "run", f"{running.url}/openapi.json",
             "--header", f"Authorization: Bearer {running.token}", "--checks", CHECKS,
             "--phases", "examples,fuzzing", "--max-examples", str(examples), "--seed", str(seed),
             "--request-timeout", "60", "--workers", "2", "--continue-on-failure",
             *(word for path in LEFT_OUT for word in ("--exclude-path", path))],
            cwd=ROOT, check=False,
        )  # fmt: skip
    return ended.returncode == 0
