"""Repeats requests for embeddings, ranks and transcripts that failed temporarily.

The retry policy is that of chat, and the meter counts each request. A final failure is a ModelError that names the
model.
"""

from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeVar

from canvas.errors import ModelError
from providers.errors import ProviderError, redact
from providers.models.billing.metering import Meter, RequestSize, describe_result
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.text.sanitizer import clean
from providers.models.types.chat import ModelSpec

T = TypeVar("T")


async def call_with_retries(
    send: Callable[[], Awaitable[tuple[T, int | None]]], size: RequestSize, meter: Meter, retry_policy: RetryPolicy
) -> T:
    """Call `send` until it succeeds; return its result without the tokens. Raises ModelError after the last retry."""
    spec = meter.spec
    with meter.recording(size) as recorded:
        for repeats in count():
            try:
                result = await meter.send(send, size, recorded.call)
                recorded.response = describe_result(meter.kind, result)
                return result
            except ProviderError as failed:
                wait = retry_policy.wait_before_next(failed, repeats, model=spec.id)
                if wait is None:
                    raise _model_error(failed, spec) from failed
            await retry_policy.sleep(wait)
    raise AssertionError("unreachable: counting has no end")


def _model_error(failed: ProviderError, spec: ModelSpec) -> ModelError:
    detail = redact(clean(failed.detail), *spec.secrets)
    return ModelError(
        f"Model {spec.id}: {failed.code} - {detail}",
        retryable=failed.is_retryable,
        kind=str(failed.code),
        provider=spec.factory,
        model=spec.name,
    )
