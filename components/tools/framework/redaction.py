"""Redaction of a tool's keys, tokens and passwords in its outputs, answers and errors."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

from components.context import NodeContext
from components.delegating_context import DelegatingContext
from components.text.templates.templates import json_text

REDACTED = "[REDACTED]"
MIN_SECRET_LENGTH = 4  # characters; redacting shorter secrets would remove ordinary words
MIN_PREFIX_LENGTH = 8  # characters; fewer of a secret, at the end of a truncated text, reveal nothing


def secrets_in(params: object, names: Iterable[str], others: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the secrets in parameters and `others`, in each spelling that URLs and JSON use, longest first."""
    values = (*(getattr(params, name, None) for name in names), *others)
    spelled = {
        spelling
        for value in (text.strip() for text in values if isinstance(text, str))  # some tools send it stripped
        if len(value) >= MIN_SECRET_LENGTH
        for spelling in (value, quote(value, safe=""), quote_plus(value), json_text(value)[1:-1])
    }
    return tuple(sorted(spelled, key=lambda spelling: (-len(spelling), spelling)))


def redact(value: Any, hidden: tuple[str, ...]) -> Any:
    """Return a JSON value with the secrets redacted, in texts and in the names of members."""
    if not hidden:
        return value
    if isinstance(value, str):
        for secret in hidden:
            value = _redact_truncated_secret(value.replace(secret, REDACTED), secret)
        return value
    if isinstance(value, Mapping):
        return {redact(name, hidden): redact(member, hidden) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [redact(item, hidden) for item in value]
    return value


def _redact_truncated_secret(text: str, secret: str) -> str:
    """Redact the beginning of a secret at the end of a text that was truncated inside the secret."""
    begins = text.rfind(secret[:MIN_PREFIX_LENGTH], max(0, len(text) - len(secret)))
    is_cut = len(secret) > MIN_PREFIX_LENGTH and begins >= 0 and secret.startswith(text[begins:])
    return text[:begins] + REDACTED if is_cut else text


def redact_citations(ctx: NodeContext, hidden: tuple[str, ...]) -> NodeContext:
    """Return the context with secrets redacted in cited chunks, because references are shown like outputs."""
    return _RedactingContext(ctx, hidden) if hidden else ctx


class _RedactingContext(DelegatingContext):
    """A context that redacts secrets in what is cited."""

    def __init__(self, ctx: NodeContext, hidden: tuple[str, ...]) -> None:
        super().__init__(ctx)
        self._hidden = hidden

    async def cite(self, chunks: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Any]]) -> list[int]:
        return await self._ctx.cite(redact(chunks, self._hidden), redact(documents, self._hidden))
