"""What texts mean, as numbers: the promises of models that give vectors, and of models that rank (tools 10.7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """A vector for each text, in order, all of one length; `tokens` as the provider counted them, else estimated."""

    vectors: Sequence[Sequence[float]]
    tokens: int


class Embedder(Protocol):
    """A model that turns texts into vectors."""

    @property
    def model(self) -> str:
        """`name@Factory`: vectors of two models with another name cannot be compared."""
        ...

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        """Vectors of any number of texts; one that is too long is cut. Raises ModelError."""
        ...


class Reranker(Protocol):
    """A model that says how well texts answer a question."""

    async def rank(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        """A score from 0 to 1 for each text, in the order of the texts. Raises ModelError."""
        ...
