"""Keys of tools' vendors: they reach the vendor, and nothing that a run leaves behind."""

import json

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from tests.builders import says
from tests.integration.engine import Bench
from worker.services.factory import ServiceConfig

OWN, DEPLOYMENTS = "key-of-the-node", "key-of-the-deployment"


def test_a_node_without_a_key_asks_with_the_deployments_and_neither_key_is_kept(bench: Bench, httpserver: HTTPServer):
    def echoing(request: Request) -> Response:
        told = f"asked with {request.headers['Authorization']}"
        row = {"title": told, "url": "https://example.com/a", "snippet": told}
        return Response(json.dumps({"results": {"result": [row]}}))

    httpserver.expect_request("/v1/search").respond_with_handler(echoing)
    reach = ServiceConfig(
        base_urls={"QUERITSEARCH": f"http://127.0.0.1:{httpserver.port}"}, vendor_keys={"QUERIT": DEPLOYMENTS}
    )
    run = bench.start(
        "begin -> with, without; with, without -> say",
        **{"with": {"component": "QueritSearch", "api_key": OWN}, "without": {"component": "querit"}},
        say=says("{with@formalized_content} {without@formalized_content}"),
    )

    bench.play(bench.a_worker(services=reach))

    assert run.status == "succeeded"
    assert {request.headers["Authorization"] for request, _ in httpserver.log} == {
        f"Bearer {OWN}",
        f"Bearer {DEPLOYMENTS}",
    }
    assert run.said.count("asked with Bearer [REDACTED]") == 4
    left = f"{run.events} {run.outputs('with')} {run.outputs('without')} {run.turns}"
    assert [key for key in (OWN, DEPLOYMENTS) if key in left] == []
