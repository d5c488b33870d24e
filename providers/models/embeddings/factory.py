"""Opens embedding models and reranking models.

    embedder = open_embedder(resolve("text-embedding-3-small@OpenAI", accounts, kind=EMBEDDING))
    vectors = (await embedder.embed(["a text", "another"])).vectors

They retry like chat models, and then raise ModelError. The built-in models `echo` and `scripted` are deterministic and
need no server; they are selected only by these names.
"""

from dataclasses import replace

from canvas.errors import ModelError
from providers.models.billing.metering import Meter
from providers.models.chat.dialects import Dialect, dialect_of_spec
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.embeddings.bedrock_embeddings import BedrockEmbedder
from providers.models.embeddings.hashed_words import HashedWordModel
from providers.models.embeddings.openai_embeddings import EMBEDDING, VendorEmbedder
from providers.models.embeddings.reranking import RERANK, VendorReranker
from providers.models.types.chat import ModelSpec
from providers.models.types.embeddings import Embedder, EmbeddingResult, Reranker
from providers.models.vendors.vendors import UNLISTED, vendors
from providers.models.wires.openai_sdk import RequestLimits

__all__ = ["EMBEDDING", "RERANK", "Embedder", "EmbeddingResult", "Reranker", "open_embedder", "open_reranker"]


def open_embedder(
    spec: ModelSpec,
    limits: RequestLimits | None = None,
    retry_policy: RetryPolicy | None = None,
    meter: Meter | None = None,
) -> Embedder:
    """Return an embedder for a resolved spec. Raises ModelError if the vendor's embeddings are not supported."""
    meter = meter or Meter(spec, EMBEDDING)
    if spec.is_builtin:
        return HashedWordModel(spec, meter)
    if dialect_of_spec(spec) is Dialect.BEDROCK:
        return BedrockEmbedder(spec, limits or RequestLimits(), retry_policy or RetryPolicy(), meter)
    vendor = vendors().get(spec.factory, UNLISTED)
    openai_spec = _openai_spec(spec, EMBEDDING)
    is_azure = dialect_of_spec(spec) is Dialect.AZURE
    return VendorEmbedder(
        openai_spec,
        vendor.embedding,
        limits or RequestLimits(),
        retry_policy or RetryPolicy(),
        meter=meter,
        is_azure=is_azure,
    )


def open_reranker(
    spec: ModelSpec,
    limits: RequestLimits | None = None,
    retry_policy: RetryPolicy | None = None,
    meter: Meter | None = None,
) -> Reranker:
    """Return a reranker for a resolved spec. Raises ModelError if the vendor's reranking is not supported."""
    meter = meter or Meter(spec, RERANK)
    if spec.is_builtin:
        return HashedWordModel(spec, meter)
    vendor = vendors().get(spec.factory, UNLISTED)
    return VendorReranker(
        _openai_spec(spec, RERANK),
        vendor.ranking,
        limits or RequestLimits(),
        retry_policy or RetryPolicy(),
        meter=meter,
    )


def _openai_spec(spec: ModelSpec, kind: str) -> ModelSpec:
    """Return the spec of a model for OpenAI's API, which some vendors offer in addition to their own."""
    match dialect_of_spec(spec):
        case Dialect.OPENAI | Dialect.AZURE:
            return spec
        case Dialect.GEMINI if kind == EMBEDDING:
            return replace(spec, base_url=f"{(spec.base_url or '').rstrip('/')}/openai")
        case _:
            raise ModelError(
                f"Models of {spec.factory} cannot be used as {kind} (model {spec.name}). Pick another vendor's.",
                kind="MODEL_ERROR",
                provider=spec.factory,
                model=spec.name,
            )
