"""Vectors over Bedrock's wire: POST {base}/model/{model}/invoke, in the words of whoever made the model.

    Amazon Titan   {"inputText": text}                     {"embedding": [numbers], "inputTextTokenCount"}
    Cohere Embed   {"texts": [texts], "input_type", ...}   {"embeddings": [[numbers]]}, or {"float": [[numbers]]} in it

Titan takes one text at a time. What else a request says (`dimensions`, `normalize`, another `input_type`) is in the
account's `embedding_fields`. Requests are signed as those of chat are (providers/models/wires/aws.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from canvas.errors import ModelError
from providers.errors import Code, ProviderError
from providers.models.billing.metering import Meter, RequestSize
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.embeddings.openai_embeddings import batch_of, fitted, in_batches, vectors_in
from providers.models.text.context_window import message_budget
from providers.models.types.chat import ModelSpec
from providers.models.types.embeddings import EmbeddingResult
from providers.models.wires.aws import AwsSigner
from providers.models.wires.json_post import encoded, post_json, whole_of
from providers.models.wires.openai_responses import field_of
from providers.models.wires.openai_sdk import Limits

_TITAN, _COHERE = "titan-embed", "cohere.embed"
_BATCH = 96  # texts that Cohere's models take at once
_LETTERS = 2048  # of one text, likewise, before the fourth version
_COUNTED = "x-amzn-bedrock-input-token-count"  # a header


class BedrockEmbedder:
    """An embedding model of one account."""

    def __init__(self, spec: ModelSpec, limits: Limits, pace: RetryPolicy, meter: Meter) -> None:
        self._spec = spec
        self._is_cohere = _COHERE in spec.name
        if not self._is_cohere and _TITAN not in spec.name:
            raise ModelError(
                f"Models of {spec.factory} cannot be used as embedding (model {spec.name}), but for Titan and Cohere.",
                kind="MODEL_ERROR",
                provider=spec.factory,
                model=spec.name,
            )
        own = spec.extra.get("embedding_fields")
        self._fields: dict[str, Any] = dict(own) if isinstance(own, Mapping) else {}
        self._batch = min(_BATCH, batch_of(spec.extra.get("embedding_batch"), _BATCH)) if self._is_cohere else 1
        self._limits = limits
        self._pace = pace
        self._meter = meter
        self._aws = AwsSigner(spec, limits)

    @property
    def model(self) -> str:
        return f"{self._spec.name}@{self._spec.factory}"

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        return await in_batches(list(map(self._fitted, texts)), self._batch, self._once, self._meter, self._pace)

    def _fitted(self, text: str) -> str:
        cut = fitted(text, message_budget(self._spec.context_tokens))
        return cut[:_LETTERS] if self._is_cohere and "-v3" in self._spec.name else cut

    async def _once(self, batch: Sequence[str], length: int | None) -> tuple[EmbeddingResult, int | None]:
        said: dict[str, Any] = (
            {"texts": list(batch), "input_type": "search_document", "truncate": "END"}
            if self._is_cohere
            else {"inputText": batch[0]}
        )
        sent = encoded({**said, **self._fields})
        url = f"{(self._spec.base_url or '').rstrip('/')}/model/{quote(self._spec.name, safe='')}/invoke"
        headers = await self._aws.signed(url, sent, service="bedrock")
        async with post_json(self._spec, url, headers, sent, self._limits, hears=self._meter.hear) as response:
            answer = await whole_of(response)
            counted = response.headers.get(_COUNTED, "")
        told = _vectors_of_cohere(answer) if self._is_cohere else [field_of(answer, "embedding")]
        if told == [None] or told is None:
            detail = "The provider's answer holds no vectors; is the base URL right, and is this such a model?"
            raise ProviderError(Code.MODEL_ERROR, detail)
        as_others = {"data": [{"index": index, "embedding": vector} for index, vector in enumerate(told)]}
        vectors = vectors_in(as_others, len(batch), length)
        tokens = int(counted) if counted.isdigit() else field_of(answer, "inputTextTokenCount")
        tokens = tokens if isinstance(tokens, int) else None
        return EmbeddingResult(vectors, tokens if tokens is not None else RequestSize(tuple(batch)).tokens()), tokens


def _vectors_of_cohere(answer: Any) -> list[Any] | None:
    embeddings = field_of(answer, "embeddings")
    listed = field_of(embeddings, "float") if isinstance(embeddings, dict) else embeddings
    return listed if isinstance(listed, list) else None
