"""Reranking: scores how well texts answer a question, over the API that most vendors share.

    POST {base}/rerank {"model", "query", "documents": [texts], "top_n"}
    {"results": [{"index", "relevance_score"}]}

The list may also be called `data`, or be the whole answer, and a score may be called `score`. Scores outside of 0 to 1
are scaled linearly from the smallest to the greatest; a text that the answer omits has 0.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any
from urllib.parse import urljoin

from providers.errors import ErrorCode, ProviderError, provider_error
from providers.models.billing.metering import Meter, RequestSize
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.embeddings.openai_embeddings import batch_size, tokens_in, truncate_text
from providers.models.embeddings.retrying_call import call_with_retries
from providers.models.text.context_window import count_tokens, message_budget, truncate_to_tokens
from providers.models.types.chat import ModelSpec
from providers.models.vendors.vendors import RankingSettings
from providers.models.wires.openai_responses import field_of, message_in
from providers.models.wires.openai_sdk import RequestLimits, read_answer, send_request

RERANK = "rerank"
_MAX_QUESTION_SHARE = 0.5  # share of the context for the question, so that a very long one leaves room for the texts


class VendorReranker:
    """A reranking model of one account."""

    def __init__(
        self,
        spec: ModelSpec,
        ranking: RankingSettings,
        limits: RequestLimits,
        retry_policy: RetryPolicy,
        *,
        meter: Meter | None = None,
    ) -> None:
        self._spec = spec
        self._meter = meter or Meter(spec, RERANK)
        path = str(spec.extra.get("rerank_path") or ranking.path)
        self._url = urljoin(f"{(spec.base_url or '').rstrip('/')}/", path)
        self._ranking = ranking
        self._batch = batch_size(spec.extra.get("rerank_batch"), ranking.batch)
        own = spec.extra.get("rerank_fields")
        self._fields: dict[str, Any] = dict(own) if isinstance(own, Mapping) else {}
        self._limits = limits
        self._retry_policy = retry_policy

    async def rank(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        tokens = message_budget(self._spec.context_tokens)
        query = truncate_to_tokens(question, int(tokens * _MAX_QUESTION_SHARE))
        tokens -= count_tokens(query)
        scores: list[float | None] = []
        for start in range(0, len(texts), self._batch):
            batch = [truncate_text(text, tokens) for text in texts[start : start + self._batch]]
            sent = RequestSize((query, *batch))
            scores += await call_with_retries(
                partial(self._send_batch, query, batch), sent, self._meter, self._retry_policy
            )
        return scale_scores(scores)

    async def _send_batch(self, question: str, batch: Sequence[str]) -> tuple[list[float | None], int | None]:
        body = {**self._fields, "model": self._spec.name, "query": question, self._ranking.texts: list(batch)}
        if self._ranking.limit:
            body[self._ranking.limit] = len(batch)
        answer = read_answer(
            await send_request(self._spec, self._url, body, self._limits, observe_headers=self._meter.observe_headers)
        )
        return scores_in(answer, len(batch)), tokens_in(answer)


def scores_in(answer: Any, count: int) -> list[float | None]:
    """Return the scores of an answer in the order of the texts; None for omitted texts. Raises ProviderError."""
    output = field_of(answer, "output")  # DashScope's own envelope
    results = answer if isinstance(answer, list) else None
    for source, name in ((answer, "results"), (answer, "data"), (output, "results"), (answer, "rankings")):
        results = field_of(source, name) if results is None else results
    if not isinstance(results, list) or not results:
        message = message_in(answer) if field_of(answer, "error") or field_of(answer, "message") else None
        if message:
            raise provider_error(message)
        raise _invalid_answer("contains no ranks. Check the base URL, and that this is a reranking model")
    scores: list[float | None] = [None] * count
    for item in results:
        index = field_of(item, "index")
        if not isinstance(index, int) or not 0 <= index < count or scores[index] is not None:
            raise _invalid_answer("ranks a text that was not in the request, or one text twice")
        scores[index] = _score(item)
    return scores


def scale_scores(raw: Sequence[float | None]) -> list[float]:
    """Return scores from 0 to 1: unchanged if all are, clamped if all are equal, and scaled linearly otherwise."""
    scores = [score for score in raw if score is not None]
    if not scores:
        return [0.0] * len(raw)
    least, greatest = min(scores), max(scores)
    if least >= 0 and greatest <= 1:
        return [0.0 if score is None else score for score in raw]
    if least == greatest:
        return [0.0 if score is None else min(1.0, max(0.0, score)) for score in raw]
    half_range = greatest / 2 - least / 2  # halves, since the difference of two floats may overflow
    return [0.0 if score is None else min(1.0, (score / 2 - least / 2) / half_range) for score in raw]


def _score(item: Any) -> float:
    for name in ("relevance_score", "score", "logit"):
        score = field_of(item, name)
        if isinstance(score, int | float) and not isinstance(score, bool):
            try:
                if isfinite(score):
                    return float(score)
            except OverflowError:
                break
    raise _invalid_answer("has a score that is not a number")


def _invalid_answer(what: str) -> ProviderError:
    return ProviderError(ErrorCode.MODEL_ERROR, f"The provider's answer {what}.")
