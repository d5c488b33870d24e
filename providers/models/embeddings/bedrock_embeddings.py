"""Embeddings over Bedrock: POST {base}/model/{model}/invoke, with a body in the format of the model's maker.

    Amazon Titan   {"inputText": text}                     {"embedding": [numbers], "inputTextTokenCount"}
    Cohere Embed   {"texts": [texts], "input_type", ...}   {"embeddings": [[numbers]]}, or {"float": [[numbers]]} in it

Titan accepts one text per request. Further fields of a request (`dimensions`, `normalize`, another `input_type`) come
from the account's `embedding_fields`. Requests are signed like those of chat (providers/models/wires/aws.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from canvas.errors import ModelError
from providers.errors import ErrorCode, ProviderError
from providers.models.billing.metering import Meter, RequestSize
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.embeddings.openai_embeddings import batch_size, embed_in_batches, truncate_text, vectors_in
from providers.models.text.context_window import message_budget
from providers.models.types.chat import ModelSpec
from providers.models.types.embeddings import EmbeddingResult
from providers.models.wires.aws import AwsSigner
from providers.models.wires.json_post import encode_body, post_json, read_json
from providers.models.wires.openai_responses import field_of
from providers.models.wires.openai_sdk import RequestLimits

_TITAN, _COHERE = "titan-embed", "cohere.embed"
_MAX_BATCH = 96  # texts per request of Cohere's models
_MAX_CHARACTERS = 2048  # characters per text of Cohere's models before version 4
_INPUT_COUNT_HEADER = "x-amzn-bedrock-input-token-count"  # header with the counted tokens


class BedrockEmbedder:
    """An embedding model of one account."""

    def __init__(self, spec: ModelSpec, limits: RequestLimits, retry_policy: RetryPolicy, meter: Meter) -> None:
        self._spec = spec
        self._is_cohere = _COHERE in spec.name
        if not self._is_cohere and _TITAN not in spec.name:
            raise ModelError(
                f"Model {spec.name} of {spec.factory} cannot be used as embedding. Use a Titan or Cohere model.",
                kind="MODEL_ERROR",
                provider=spec.factory,
                model=spec.name,
            )
        own = spec.extra.get("embedding_fields")
        self._fields: dict[str, Any] = dict(own) if isinstance(own, Mapping) else {}
        self._batch = (
            min(_MAX_BATCH, batch_size(spec.extra.get("embedding_batch"), _MAX_BATCH)) if self._is_cohere else 1
        )
        self._limits = limits
        self._retry_policy = retry_policy
        self._meter = meter
        self._aws = AwsSigner(spec, limits)

    @property
    def model(self) -> str:
        return f"{self._spec.name}@{self._spec.factory}"

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        return await embed_in_batches(
            list(map(self._truncate, texts)), self._batch, self._send_batch, self._meter, self._retry_policy
        )

    def _truncate(self, text: str) -> str:
        cut = truncate_text(text, message_budget(self._spec.context_tokens))
        return cut[:_MAX_CHARACTERS] if self._is_cohere and "-v3" in self._spec.name else cut

    async def _send_batch(self, batch: Sequence[str], length: int | None) -> tuple[EmbeddingResult, int | None]:
        body: dict[str, Any] = (
            {"texts": list(batch), "input_type": "search_document", "truncate": "END"}
            if self._is_cohere
            else {"inputText": batch[0]}
        )
        sent = encode_body({**body, **self._fields})
        url = f"{(self._spec.base_url or '').rstrip('/')}/model/{quote(self._spec.name, safe='')}/invoke"
        headers = await self._aws.sign(url, sent, service="bedrock")
        async with post_json(
            self._spec, url, headers, sent, self._limits, observe_headers=self._meter.observe_headers
        ) as response:
            answer = await read_json(response)
            counted = response.headers.get(_INPUT_COUNT_HEADER, "")
        raw = _vectors_of_cohere(answer) if self._is_cohere else [field_of(answer, "embedding")]
        if raw == [None] or raw is None:
            detail = (
                "The provider's answer contains no vectors. Check the base URL, and that this is an embedding model."
            )
            raise ProviderError(ErrorCode.MODEL_ERROR, detail)
        openai_form = {"data": [{"index": index, "embedding": vector} for index, vector in enumerate(raw)]}
        vectors = vectors_in(openai_form, len(batch), length)
        tokens = int(counted) if counted.isdigit() else field_of(answer, "inputTextTokenCount")
        tokens = tokens if isinstance(tokens, int) else None
        return EmbeddingResult(vectors, tokens if tokens is not None else RequestSize(tuple(batch)).tokens()), tokens


def _vectors_of_cohere(answer: Any) -> list[Any] | None:
    embeddings = field_of(answer, "embeddings")
    vectors = field_of(embeddings, "float") if isinstance(embeddings, dict) else embeddings
    return vectors if isinstance(vectors, list) else None
