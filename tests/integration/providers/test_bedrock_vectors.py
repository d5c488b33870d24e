"""Embedding models of Bedrock, with replies as in the documentation of AWS, and signatures that are verified."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from canvas.errors import ModelError
from providers.models.billing.metering import Meter
from providers.models.chat.catalogue import resolve
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.embeddings.factory import EMBEDDING, EmbeddingResult, open_embedder
from providers.models.transport.clients import close_connections
from providers.models.vendors.accounts import AccountModel, VendorAccount
from providers.models.wires.openai_sdk import RequestLimits
from tests.vendor_server import ReceivedRequest, Reply, VendorServer, vendor_server, whole

pytest.importorskip("botocore")

TITAN, COHERE = "amazon.titan-embed-text-v2:0", "cohere.embed-multilingual-v3"
ACCESS, SECRET, REGION = "AKIAEXAMPLE", "a-secret-of-forty-letters", "eu-west-1"
KEYS = json.dumps({"bedrock_ak": ACCESS, "bedrock_sk": SECRET, "bedrock_region": REGION})


class HeaderRecorder:
    """A rate limiter that grants every permit and records the response headers."""

    def __init__(self) -> None:
        self.headers: list[Mapping[str, str]] = []

    async def acquire(self, request: Any) -> "HeaderRecorder":
        return self

    def release(self, tokens: int | None, failed: Any) -> None:
        pass

    def observe_headers(self, headers: Mapping[str, str]) -> None:
        self.headers.append(headers)


def embed(
    model: str, plays: list[Reply], *texts: str, recorder: HeaderRecorder | None = None, **extra: Any
) -> tuple[EmbeddingResult, VendorServer]:
    async def send() -> tuple[EmbeddingResult, VendorServer]:
        async with vendor_server(*plays) as server:
            models = {model: AccountModel(kinds=frozenset({EMBEDDING}))}
            account = VendorAccount("Bedrock", base_url=server.url, api_key=KEYS, models=models, extra=extra)
            spec = resolve(f"{model}@Bedrock", [account], kind=EMBEDDING)
            retry_policy = RetryPolicy(lambda seconds: asyncio.sleep(0), lambda: 1.0, retries=1)
            try:
                return await open_embedder(
                    spec, RequestLimits(), retry_policy, Meter(spec, EMBEDDING, limiter=recorder)
                ).embed(texts), server
            finally:
                await close_connections()

    return asyncio.run(send())


def signature_of(request: ReceivedRequest) -> str:
    """Return the AWS signature (version 4) of a request, computed by the public rules."""
    fields = dict(part.split("=", 1) for part in request.headers["authorization"].split(" ", 1)[1].split(", "))
    scope = fields["Credential"].removeprefix(f"{ACCESS}/")
    day, region, service, _ = scope.split("/")
    path = quote(urlsplit(request.target).path, safe="/-_.~")  # each segment is encoded once more
    canonical_headers = "".join(
        f"{name}:{request.headers[name].strip()}\n" for name in fields["SignedHeaders"].split(";")
    )
    parts = ("POST", path, "", canonical_headers, fields["SignedHeaders"], hashlib.sha256(request.content).hexdigest())
    canonical = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    key = f"AWS4{SECRET}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    string_to_sign = "\n".join(("AWS4-HMAC-SHA256", request.headers["x-amz-date"], scope, canonical))
    return hmac.new(key, string_to_sign.encode(), hashlib.sha256).hexdigest()


def titan(*vector: float, tokens: int = 3) -> Reply:
    return whole({"embedding": list(vector), "inputTextTokenCount": tokens})


def test_titan_receives_one_text_per_request():
    result, server = embed(TITAN, [titan(1.0, 0.0), titan(0.0, 1.0, tokens=4)], "one", "two")

    assert result == EmbeddingResult([[1.0, 0.0], [0.0, 1.0]], 7)
    assert [request.target for request in server.requests] == [f"/model/{quote(TITAN, safe='')}/invoke"] * 2
    assert [request.json for request in server.requests] == [{"inputText": "one"}, {"inputText": "two"}]


def test_cohere_receives_many_texts_per_request_and_returns_tokens_in_a_header():
    answer = {"embeddings": [[1.0, 0.0], [0.0, 1.0]], "response_type": "embeddings_floats", "texts": ["one", "two"]}
    result, server = embed(COHERE, [whole(answer, x_amzn_bedrock_input_token_count="9")], "one", "x" * 5000)

    assert result == EmbeddingResult([[1.0, 0.0], [0.0, 1.0]], 9)
    (request,) = server.requests
    assert request.json["texts"][0] == "one"
    assert len(request.json["texts"][1]) <= 2048
    assert request.json["input_type"] == "search_document"


def test_typed_vectors_are_read_and_fields_of_the_account_are_sent():
    answer = {"embeddings": {"float": [[0.5, 0.5]]}, "response_type": "embeddings_by_type"}
    fields = {"embedding_types": ["float"], "input_type": "search_query"}
    result, server = embed("cohere.embed-v4:0", [whole(answer)], "one", embedding_fields=fields)

    assert result.vectors == [[0.5, 0.5]]
    assert server.requests[0].json == {"texts": ["one"], "truncate": "END", **fields}


@pytest.mark.parametrize("model", [TITAN, COHERE])
def test_request_has_a_valid_aws_signature(model: str):
    play = titan(1.0) if model == TITAN else whole({"embeddings": [[1.0]]})
    _, server = embed(model, [play], "größer")

    (request,) = server.requests
    assert request.headers["authorization"].endswith(f"Signature={signature_of(request)}")
    assert f"/{REGION}/bedrock/aws4_request" in request.headers["authorization"]
    assert SECRET not in str(request.headers) + request.content.decode()


def test_a_throttled_request_is_sent_again():
    throttled = whole({"message": "Too many requests"}, 429, x_amzn_errortype="ThrottlingException:http://x")
    result, server = embed(TITAN, [throttled, titan(1.0)], "one")

    assert result.vectors == [[1.0]]
    assert len(server.requests) == 2


def test_response_without_vectors_is_an_error_without_the_key():
    with pytest.raises(ModelError, match="contains no vectors") as failed:
        embed(TITAN, [whole({"results": []})], "one")

    assert SECRET not in str(failed.value)


def test_vectors_of_two_lengths_are_an_error():
    with pytest.raises(ModelError, match="several lengths"):
        embed(TITAN, [titan(1.0, 0.0), titan(1.0)], "one", "two")


def test_rate_limit_headers_of_a_response_reach_the_limiter():
    recorder = HeaderRecorder()

    embed(TITAN, [whole({"embedding": [1.0]}, x_ratelimit_remaining_requests="0")], "one", recorder=recorder)

    assert [headers["x-ratelimit-remaining-requests"] for headers in recorder.headers] == ["0"]


def test_unknown_embedding_model_is_refused_by_name():
    with pytest.raises(ModelError, match=r"mystery\.embed"):
        embed("mystery.embed", [titan(1.0)], "one")
