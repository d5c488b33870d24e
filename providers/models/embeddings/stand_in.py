"""The stand-in for models of vectors and ranks: how often which words stand in a text (decisions 26).

No model and no server: a text's words are counted into a few hundred places that their hashes name. Texts that share
words are near each other, texts that only mean the same are not. Chosen by the names `echo` and `scripted` only.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b
from math import sqrt

from providers.models.billing.metering import Meter, RequestSize
from providers.models.types.chat import ModelSpec
from providers.models.types.embeddings import EmbeddingResult

PLACES = 384  # numbers in a vector; the last is for texts without a word
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_ENDING = re.compile(r"(?<=\w{3})(?:ies|es|s)$")  # of an English plural, roughly


class HashedWordModel:
    """Vectors and ranks from words, the same on every machine."""

    def __init__(self, spec: ModelSpec, meter: Meter) -> None:
        self._spec = spec
        self._meter = meter

    @property
    def model(self) -> str:
        return f"hashed-words@{self._spec.factory}"

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        async def counted() -> tuple[EmbeddingResult, int | None]:
            tokens = sent.tokens()
            return EmbeddingResult([vector_of(text) for text in texts], tokens), tokens

        sent = RequestSize(tuple(texts))
        return await self._meter.passed(counted, sent)

    async def rank(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        async def compared() -> tuple[Sequence[float], int | None]:
            asked = vector_of(question)
            products = (sum(a * b for a, b in zip(asked, vector_of(text), strict=True)) for text in texts)
            return [min(1.0, product) for product in products], None

        return await self._meter.passed(compared, RequestSize((question, *texts)))


def vector_of(text: str) -> list[float]:
    """A vector of length 1 without a negative number, so that two of them are 0 to 1 alike."""
    counts = [0.0] * PLACES
    for word in _WORD.findall(text.lower()):
        digest = blake2b(_ENDING.sub("", word).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        counts[int.from_bytes(digest, "big") % (PLACES - 1)] += 1.0
    length = sqrt(sum(count * count for count in counts))
    if not length:
        return [0.0] * (PLACES - 1) + [1.0]
    return [count / length for count in counts]
