"""Vectors of Bedrock's models, as AWS' documentation shows them on the wire, asked with signatures that are checked."""

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
from tests.vendor_server import Asked, Play, VendorServer, vendor_server, whole

pytest.importorskip("botocore")

TITAN, COHERE = "amazon.titan-embed-text-v2:0", "cohere.embed-multilingual-v3"
ACCESS, SECRET, REGION = "AKIAEXAMPLE", "a-secret-of-forty-letters", "eu-west-1"
KEYS = json.dumps({"bedrock_ak": ACCESS, "bedrock_sk": SECRET, "bedrock_region": REGION})


class Hearing:
    """A gate that lets everybody through and keeps what a vendor says beside its answers."""

    def __init__(self) -> None:
        self.heard: list[Mapping[str, str]] = []

    async def acquire(self, request: Any) -> "Hearing":
        return self

    def release(self, tokens: int | None, failed: Any) -> None:
        pass

    def observe_headers(self, headers: Mapping[str, str]) -> None:
        self.heard.append(headers)


def embed(
    model: str, plays: list[Play], *texts: str, gate: Hearing | None = None, **extra: Any
) -> tuple[EmbeddingResult, VendorServer]:
    async def used() -> tuple[EmbeddingResult, VendorServer]:
        async with vendor_server(*plays) as server:
            models = {model: AccountModel(kinds=frozenset({EMBEDDING}))}
            given = VendorAccount("Bedrock", base_url=server.url, api_key=KEYS, models=models, extra=extra)
            spec = resolve(f"{model}@Bedrock", [given], kind=EMBEDDING)
            pace = RetryPolicy(lambda seconds: asyncio.sleep(0), lambda: 1.0, retries=1)
            try:
                return await open_embedder(spec, RequestLimits(), pace, Meter(spec, EMBEDDING, limiter=gate)).embed(
                    texts
                ), server
            finally:
                await close_connections()

    return asyncio.run(used())


def signature_of(asked: Asked) -> str:
    """What AWS would have to find in `Signature=`: version 4, worked out from the request by its public rules."""
    stated = dict(part.split("=", 1) for part in asked.headers["authorization"].split(" ", 1)[1].split(", "))
    scope = stated["Credential"].removeprefix(f"{ACCESS}/")
    day, region, service, _ = scope.split("/")
    path = quote(urlsplit(asked.target).path, safe="/-_.~")  # each segment is encoded once more
    named = "".join(f"{name}:{asked.headers[name].strip()}\n" for name in stated["SignedHeaders"].split(";"))
    parts = ("POST", path, "", named, stated["SignedHeaders"], hashlib.sha256(asked.content).hexdigest())
    canonical = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    key = f"AWS4{SECRET}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    said = "\n".join(("AWS4-HMAC-SHA256", asked.headers["x-amz-date"], scope, canonical))
    return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()


def titan(*vector: float, tokens: int = 3) -> Play:
    return whole({"embedding": list(vector), "inputTextTokenCount": tokens})


def test_titan_is_asked_one_text_at_a_time():
    found, server = embed(TITAN, [titan(1.0, 0.0), titan(0.0, 1.0, tokens=4)], "one", "two")

    assert found == EmbeddingResult([[1.0, 0.0], [0.0, 1.0]], 7)
    assert [asked.target for asked in server.requests] == [f"/model/{quote(TITAN, safe='')}/invoke"] * 2
    assert [asked.json for asked in server.requests] == [{"inputText": "one"}, {"inputText": "two"}]


def test_cohere_is_asked_many_texts_at_once_and_tells_tokens_in_a_header():
    answer = {"embeddings": [[1.0, 0.0], [0.0, 1.0]], "response_type": "embeddings_floats", "texts": ["one", "two"]}
    found, server = embed(COHERE, [whole(answer, x_amzn_bedrock_input_token_count="9")], "one", "x" * 5000)

    assert found == EmbeddingResult([[1.0, 0.0], [0.0, 1.0]], 9)
    (asked,) = server.requests
    assert asked.json["texts"][0] == "one"
    assert len(asked.json["texts"][1]) <= 2048
    assert asked.json["input_type"] == "search_document"


def test_vectors_by_type_are_read_too_and_an_account_says_what_else_is_sent():
    answer = {"embeddings": {"float": [[0.5, 0.5]]}, "response_type": "embeddings_by_type"}
    fields = {"embedding_types": ["float"], "input_type": "search_query"}
    found, server = embed("cohere.embed-v4:0", [whole(answer)], "one", embedding_fields=fields)

    assert found.vectors == [[0.5, 0.5]]
    assert server.requests[0].json == {"texts": ["one"], "truncate": "END", **fields}


@pytest.mark.parametrize("model", [TITAN, COHERE])
def test_a_request_carries_the_signature_that_aws_would_work_out(model: str):
    play = titan(1.0) if model == TITAN else whole({"embeddings": [[1.0]]})
    _, server = embed(model, [play], "größer")

    (asked,) = server.requests
    assert asked.headers["authorization"].endswith(f"Signature={signature_of(asked)}")
    assert f"/{REGION}/bedrock/aws4_request" in asked.headers["authorization"]
    assert SECRET not in str(asked.headers) + asked.content.decode()


def test_a_throttled_request_is_sent_again():
    throttled = whole({"message": "Too many requests"}, 429, x_amzn_errortype="ThrottlingException:http://x")
    found, server = embed(TITAN, [throttled, titan(1.0)], "one")

    assert found.vectors == [[1.0]]
    assert len(server.requests) == 2


def test_what_is_no_vector_is_a_failure_that_shows_no_key():
    with pytest.raises(ModelError, match="contains no vectors") as failed:
        embed(TITAN, [whole({"results": []})], "one")

    assert SECRET not in str(failed.value)


def test_vectors_of_two_lengths_are_a_failure():
    with pytest.raises(ModelError, match="several lengths"):
        embed(TITAN, [titan(1.0, 0.0), titan(1.0)], "one", "two")


def test_what_is_said_beside_an_answer_is_heard():
    gate = Hearing()

    embed(TITAN, [whole({"embedding": [1.0]}, x_ratelimit_remaining_requests="0")], "one", gate=gate)

    assert [heard["x-ratelimit-remaining-requests"] for heard in gate.heard] == ["0"]


def test_another_embedding_model_is_refused_by_name():
    with pytest.raises(ModelError, match=r"mystery\.embed"):
        embed("mystery.embed", [titan(1.0)], "one")
