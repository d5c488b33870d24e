"""Which texts answer a question best, over the wire that vendors share (tools 10.7).

    POST {base}/rerank {"model", "query", "documents": [texts], "top_n"}
    {"results": [{"index", "relevance_score"}]}

The list may also be called `data`, or be the whole answer, and a score just `score`. Scores outside of
0 to 1 are scaled from the least to the greatest; a text that the answer leaves out has 0.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any
from urllib.parse import urljoin

from providers.errors import Code, ProviderError, failure
from providers.models.billing.metering import Meter, RequestSize
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.embeddings.openai_embeddings import batch_of, fitted, tokens_in
from providers.models.embeddings.retrying_call import call_with_retries
from providers.models.text.context_window import count_tokens, message_budget, truncate_to_tokens
from providers.models.types.chat import ModelSpec
from providers.models.vendors.vendors import Ranking
from providers.models.wires.openai_responses import field_of, message_in
from providers.models.wires.openai_sdk import Limits, answer_of, ask

RERANK = "rerank"
_MOST_OF_QUESTION = 0.5  # of what a model reads: beside a question without an end no text would have room


class VendorReranker:
    """A reranking model of one account."""

    def __init__(
        self, spec: ModelSpec, ranking: Ranking, limits: Limits, pace: RetryPolicy, *, meter: Meter | None = None
    ) -> None:
        self._spec = spec
        self._meter = meter or Meter(spec, RERANK)
        path = str(spec.extra.get("rerank_path") or ranking.path)
        self._url = urljoin(f"{(spec.base_url or '').rstrip('/')}/", path)
        self._ranking = ranking
        self._batch = batch_of(spec.extra.get("rerank_batch"), ranking.batch)
        own = spec.extra.get("rerank_fields")
        self._fields: dict[str, Any] = dict(own) if isinstance(own, Mapping) else {}
        self._limits = limits
        self._pace = pace

    async def rank(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        room = message_budget(self._spec.context_tokens)
        asked = truncate_to_tokens(question, int(room * _MOST_OF_QUESTION))
        room -= count_tokens(asked)
        told: list[float | None] = []
        for start in range(0, len(texts), self._batch):
            batch = [fitted(text, room) for text in texts[start : start + self._batch]]
            sent = RequestSize((asked, *batch))
            told += await call_with_retries(partial(self._once, asked, batch), sent, self._meter, self._pace)
        return scaled(told)

    async def _once(self, question: str, batch: Sequence[str]) -> tuple[list[float | None], int | None]:
        body = {**self._fields, "model": self._spec.name, "query": question, self._ranking.texts: list(batch)}
        if self._ranking.limit:
            body[self._ranking.limit] = len(batch)
        answer = answer_of(await ask(self._spec, self._url, body, self._limits, hears=self._meter.hear))
        return scores_in(answer, len(batch)), tokens_in(answer)


def scores_in(answer: Any, count: int) -> list[float | None]:
    """The scores of an answer, in the order of the texts; None for those it leaves out. Raises CallFailed."""
    output = field_of(answer, "output")  # DashScope's own envelope
    results = answer if isinstance(answer, list) else None
    for source, name in ((answer, "results"), (answer, "data"), (output, "results"), (answer, "rankings")):
        results = field_of(source, name) if results is None else results
    if not isinstance(results, list) or not results:
        told = message_in(answer) if field_of(answer, "error") or field_of(answer, "message") else None
        raise failure(told) if told else _wrong("holds no ranks; is the base URL right, and is this such a model?")
    scores: list[float | None] = [None] * count
    for item in results:
        index = field_of(item, "index")
        if not isinstance(index, int) or not 0 <= index < count or scores[index] is not None:
            raise _wrong("ranks texts that it was not asked about, or one of them twice")
        scores[index] = _score(item)
    return scores


def scaled(told: Sequence[float | None]) -> list[float]:
    """Scores from 0 to 1: as told if all are, else scaled by least and greatest, or clamped where all are equal."""
    scores = [score for score in told if score is not None]
    if not scores:
        return [0.0] * len(told)
    least, greatest = min(scores), max(scores)
    if least >= 0 and greatest <= 1:
        return [0.0 if score is None else score for score in told]
    if least == greatest:
        return [0.0 if score is None else min(1.0, max(0.0, score)) for score in told]
    reach = greatest / 2 - least / 2  # halves: the difference of two floats may be none
    return [0.0 if score is None else min(1.0, (score / 2 - least / 2) / reach) for score in told]


def _score(item: Any) -> float:
    for name in ("relevance_score", "score", "logit"):
        score = field_of(item, name)
        if isinstance(score, int | float) and not isinstance(score, bool):
            try:
                if isfinite(score):
                    return float(score)
            except OverflowError:
                break
    raise _wrong("has a score that is no number")


def _wrong(what: str) -> ProviderError:
    return ProviderError(Code.MODEL_ERROR, f"The provider's answer {what}.")
