"""The built-in embedding and reranking model, which counts the words of a text.

It needs no server: each word is counted at a position of the vector that its hash selects. Texts with common words are
similar; texts with the same meaning but other words are not. It is selected only by the names `echo` and `scripted`.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b
from math import sqrt

from providers.models.billing.metering import Meter, RequestSize
from providers.models.types.chat import ModelSpec
from providers.models.types.embeddings import EmbeddingResult

VECTOR_LENGTH = 384  # length of a vector; the last position is for texts without words
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_ENDING = re.compile(r"(?<=\w{3})(?:ies|es|s)$")  # roughly, the ending of an English plural


class HashedWordModel:
    """Computes vectors and ranks from words, with the same result on every machine."""

    def __init__(self, spec: ModelSpec, meter: Meter) -> None:
        self._spec = spec
        self._meter = meter

    @property
    def model(self) -> str:
        return f"hashed-words@{self._spec.factory}"

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        async def compute() -> tuple[EmbeddingResult, int | None]:
            tokens = sent.tokens()
            return EmbeddingResult([vector_of(text) for text in texts], tokens), tokens

        sent = RequestSize(tuple(texts))
        return await self._meter.call(compute, sent)

    async def rank(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        async def compare() -> tuple[Sequence[float], int | None]:
            query = vector_of(question)
            products = (sum(a * b for a, b in zip(query, vector_of(text), strict=True)) for text in texts)
            return [min(1.0, product) for product in products], None

        return await self._meter.call(compare, RequestSize((question, *texts)))


def vector_of(text: str) -> list[float]:
    """Return a unit vector without negative numbers, so that the similarity of two vectors is between 0 and 1."""
    counts = [0.0] * VECTOR_LENGTH
    for word in _WORD.findall(text.lower()):
        digest = blake2b(_ENDING.sub("", word).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        counts[int.from_bytes(digest, "big") % (VECTOR_LENGTH - 1)] += 1.0
    length = sqrt(sum(count * count for count in counts))
    if not length:
        return [0.0] * (VECTOR_LENGTH - 1) + [1.0]
    return [count / length for count in counts]
