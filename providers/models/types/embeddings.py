"""The protocols of embedding models and reranking models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """A vector for each text, in order, all of one length; `tokens` as counted by the provider, or estimated."""

    vectors: Sequence[Sequence[float]]
    tokens: int


class Embedder(Protocol):
    """A model that returns vectors for texts."""

    @property
    def model(self) -> str:
        """Return `name@Factory`. Only vectors of the same model can be compared."""
        ...

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        """Return the vectors of any number of texts; a text that is too long is truncated. Raises ModelError."""
        ...


class Reranker(Protocol):
    """A model that scores how well texts answer a question."""

    async def rank(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        """Return a score from 0 to 1 for each text, in the order of the texts. Raises ModelError."""
        ...
