"""API keys of tools: the vendor receives them, and no row of a run contains them."""

import json

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from tests.builders import content
from tests.integration.engine import Bench
from worker.services.factory import ServiceConfig

NODE_KEY, DEPLOYMENT_KEY = "key-of-the-node", "key-of-the-deployment"


def test_tool_sends_its_own_or_the_deployment_key_and_neither_is_stored(bench: Bench, httpserver: HTTPServer):
    def repeat_key(request: Request) -> Response:
        text = f"asked with {request.headers['Authorization']}"
        row = {"title": text, "url": "https://example.com/a", "snippet": text}
        return Response(json.dumps({"results": {"result": [row]}}))

    httpserver.expect_request("/v1/search").respond_with_handler(repeat_key)
    services = ServiceConfig(
        base_urls={"QUERITSEARCH": f"http://127.0.0.1:{httpserver.port}"}, vendor_keys={"QUERIT": DEPLOYMENT_KEY}
    )
    run = bench.start(
        "begin -> with, without; with, without -> say",
        **{"with": {"component": "QueritSearch", "api_key": NODE_KEY}, "without": {"component": "querit"}},
        say=content("{with@formalized_content} {without@formalized_content}"),
    )

    bench.play(bench.a_worker(services=services))

    assert run.status == "succeeded"
    assert {request.headers["Authorization"] for request, _ in httpserver.log} == {
        f"Bearer {NODE_KEY}",
        f"Bearer {DEPLOYMENT_KEY}",
    }
    assert run.text.count("asked with Bearer [REDACTED]") == 4
    stored = f"{run.events} {run.outputs('with')} {run.outputs('without')} {run.streams}"
    assert [key for key in (NODE_KEY, DEPLOYMENT_KEY) if key in stored] == []
