"""Embeddings over OpenAI's API: POST {base}/embeddings {"model", "input": [texts]}.

Texts are sent in batches of the vendor's size and truncated to the model's context. Answers are checked completely:
vectors may come in any order of `index`, as numbers or in base64. Missing, surplus or invalid vectors and different
lengths are errors, so a text never gets the vector of another text.
"""

import struct
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any

from providers.errors import ErrorCode, ProviderError, provider_error
from providers.models.billing.metering import Meter, RequestSize
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.embeddings.retrying_call import call_with_retries
from providers.models.text.context_window import max_tokens_of, message_budget, truncate_to_tokens
from providers.models.types.chat import ModelSpec
from providers.models.types.embeddings import EmbeddingResult
from providers.models.vendors.vendors import EmbeddingSettings
from providers.models.wires.openai_responses import field_of, message_in
from providers.models.wires.openai_sdk import RequestLimits, read_answer, send_request

EMBEDDING = "embedding"
_PATH = "/embeddings"
_BLANK = " "  # replaces an empty text, which vendors refuse


class VendorEmbedder:
    """An embedding model of one account."""

    def __init__(
        self,
        spec: ModelSpec,
        embedding: EmbeddingSettings,
        limits: RequestLimits,
        retry_policy: RetryPolicy,
        *,
        meter: Meter | None = None,
        is_azure: bool = False,
    ) -> None:
        self._spec = spec
        self._meter = meter or Meter(spec, EMBEDDING)
        self._is_azure = is_azure
        self._batch = batch_size(spec.extra.get("embedding_batch"), embedding.batch)
        own = spec.extra.get("embedding_fields")
        self._fields = {**embedding.fields, **(own if isinstance(own, Mapping) else {})}
        self._limits = limits
        self._retry_policy = retry_policy

    @property
    def model(self) -> str:
        return f"{self._spec.name}@{self._spec.factory}"

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        cut = [truncate_text(text, message_budget(self._spec.context_tokens)) for text in texts]
        return await embed_in_batches(cut, self._batch, self._send_batch, self._meter, self._retry_policy)

    async def _send_batch(self, batch: Sequence[str], length: int | None) -> tuple[EmbeddingResult, int | None]:
        body = {**self._fields, "model": self._spec.name, "input": list(batch)}
        reply = await send_request(
            self._spec, _PATH, body, self._limits, is_azure=self._is_azure, observe_headers=self._meter.observe_headers
        )
        answer = read_answer(reply)
        vectors = vectors_in(answer, len(batch), length)
        tokens = tokens_in(answer)
        return EmbeddingResult(vectors, tokens if tokens is not None else RequestSize(tuple(batch)).tokens()), tokens


SendBatch = Callable[[Sequence[str], int | None], Awaitable[tuple[EmbeddingResult, int | None]]]
"""Sends one request: (texts, length of the vectors if known) -> (result, tokens if the vendor reports them)."""


async def embed_in_batches(
    texts: Sequence[str], size: int, send_batch: SendBatch, meter: Meter, retry_policy: RetryPolicy
) -> EmbeddingResult:
    """Return the vectors of texts, requested in batches of `size`. Raises ModelError."""
    vectors: list[Sequence[float]] = []
    tokens = 0
    for start in range(0, len(texts), size):
        batch = texts[start : start + size]
        length = len(vectors[0]) if vectors else None
        result = await call_with_retries(
            partial(send_batch, batch, length), RequestSize(tuple(batch)), meter, retry_policy
        )
        vectors += result.vectors
        tokens += result.tokens
    return EmbeddingResult(vectors, tokens)


def vectors_in(answer: Any, count: int, length: int | None = None) -> list[Sequence[float]]:
    """Return the vectors of an answer to `count` texts, in the order of the texts. Raises ProviderError."""
    data = field_of(answer, "data")
    if not isinstance(data, list):
        message = message_in(answer) if field_of(answer, "error") or field_of(answer, "message") else None
        if message:
            raise provider_error(message)
        raise _invalid_answer("contains no vectors. Check the base URL, and that this is an embedding model")
    if len(data) != count:
        raise _invalid_answer(f"contains {len(data)} vectors for {count} texts")
    found: dict[int, Sequence[float]] = {}
    for position, item in enumerate(data):
        index = field_of(item, "index")
        found[index if isinstance(index, int) else position] = _parse_vector(field_of(item, "embedding"))
    if found.keys() != set(range(count)):
        raise _invalid_answer("has wrong indexes of vectors")
    vectors = [found[index] for index in range(count)]
    lengths = {len(vector) for vector in vectors} | ({length} if length is not None else set())
    if len(lengths) > 1:
        raise _invalid_answer(f"has vectors of several lengths: {', '.join(map(str, sorted(lengths)))}")
    return vectors


def truncate_text(text: str, tokens: int) -> str:
    """Return a text that may be sent: truncated to `tokens`, and not empty."""
    cut = text if max_tokens_of(text) <= tokens else truncate_to_tokens(text, tokens)
    return cut if cut.strip() else _BLANK


def batch_size(own: Any, default: int) -> int:
    """Return the batch size of an account if it is a positive integer, or the default."""
    return own if isinstance(own, int) and not isinstance(own, bool) and own > 0 else default


def _parse_vector(value: Any) -> Sequence[float]:
    numbers = _decode_vector(value) if isinstance(value, str) else value
    if not isinstance(numbers, list) or not numbers:
        raise _invalid_answer("has an invalid vector")
    if not all(type(number) in (float, int) and _is_finite(number) for number in numbers):
        raise _invalid_answer("has a vector with a value that is not a number")
    return [float(number) for number in numbers]


def _decode_vector(text: str) -> list[float]:
    """Decode a vector in base64: floats of four bytes, little-endian."""
    try:
        packed = b64decode(text, validate=True)
        return list(struct.unpack(f"<{len(packed) // 4}f", packed))
    except (NotBase64, ValueError, struct.error) as problem:
        raise _invalid_answer("has a vector in base64 that cannot be read") from problem


def _is_finite(number: float) -> bool:
    try:
        return isfinite(number)
    except OverflowError:
        return False


def tokens_in(answer: Any) -> int | None:
    """Return the tokens that a vendor reports; None if it reports none."""
    meta = field_of(answer, "meta")  # Cohere's form
    sources = (field_of(answer, "usage"), field_of(meta, "billed_units"), field_of(meta, "tokens"))
    for source in sources:
        for name in ("total_tokens", "prompt_tokens", "input_tokens"):
            tokens = field_of(source, name)
            if isinstance(tokens, int) and tokens > 0:
                return tokens
    return None


def _invalid_answer(what: str) -> ProviderError:
    return ProviderError(ErrorCode.MODEL_ERROR, f"The provider's answer {what}.")
