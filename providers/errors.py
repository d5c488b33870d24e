"""Error codes of failed requests to a provider, and which failures a retry may repair.

`classify` uses the most exact fact that is known: first a provider error code that has only one meaning, then the HTTP
status (also a status at the start of the message), then a provider's broader error type, and last the words of the
message. The code names the real cause, also after the last retry.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum


class ErrorCode(StrEnum):
    """Error codes; a failed answer contains its code after `**ERROR**: `."""

    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    RATE_LIMIT_EXCEEDED = "RATE_LIMIT_EXCEEDED"
    AUTH_ERROR = "AUTH_ERROR"
    INVALID_REQUEST = "INVALID_REQUEST"
    SERVER_ERROR = "SERVER_ERROR"
    TIMEOUT = "TIMEOUT"
    CONNECTION_ERROR = "CONNECTION_ERROR"
    CONTENT_FILTERED = "CONTENT_FILTERED"
    MODEL_ERROR = "MODEL_ERROR"
    GENERIC_ERROR = "GENERIC_ERROR"


RETRYABLE_CODES = frozenset(
    {ErrorCode.RATE_LIMIT_EXCEEDED, ErrorCode.SERVER_ERROR, ErrorCode.TIMEOUT, ErrorCode.CONNECTION_ERROR}
)
"""Codes of failures that may not occur again if the same request is repeated."""


class ProviderError(Exception):
    """One request to a provider failed. The caller repeats it or ends the answer with an ErrorDelta."""

    def __init__(self, code: ErrorCode, detail: str, retry_after: float | None = None) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.retry_after = retry_after  # seconds that the provider asks the caller to wait

    @property
    def is_retryable(self) -> bool:
        """Return whether repeating the request may help."""
        return self.code in RETRYABLE_CODES


_CODES_BY_NAME = {
    "insufficient_quota": ErrorCode.QUOTA_EXCEEDED,  # arrives as a 429, but waiting does not help
    "billing_hard_limit_reached": ErrorCode.QUOTA_EXCEEDED,
    "billing_not_active": ErrorCode.QUOTA_EXCEEDED,
    "content_filter": ErrorCode.CONTENT_FILTERED,
    "content_policy_violation": ErrorCode.CONTENT_FILTERED,
    "model_not_found": ErrorCode.MODEL_ERROR,
    "api_key_invalid": ErrorCode.AUTH_ERROR,  # Gemini's, as a 400
    "modelerrorexception": ErrorCode.SERVER_ERROR,  # Bedrock's, as a 424
    "servicequotaexceededexception": ErrorCode.QUOTA_EXCEEDED,  # likewise, as a 400
}
_CODES_BY_STATUS = {
    401: ErrorCode.AUTH_ERROR,
    402: ErrorCode.QUOTA_EXCEEDED,
    403: ErrorCode.AUTH_ERROR,
    404: ErrorCode.MODEL_ERROR,
    408: ErrorCode.TIMEOUT,
    409: ErrorCode.SERVER_ERROR,  # a conflict inside the provider: the request is fine and may be sent again
    429: ErrorCode.RATE_LIMIT_EXCEEDED,
    451: ErrorCode.CONTENT_FILTERED,
}
_CODES_BY_TYPE = {
    "rate_limit_exceeded": ErrorCode.RATE_LIMIT_EXCEEDED,
    "rate_limit_error": ErrorCode.RATE_LIMIT_EXCEEDED,
    "authentication_error": ErrorCode.AUTH_ERROR,
    "invalid_api_key": ErrorCode.AUTH_ERROR,
    "permission_error": ErrorCode.AUTH_ERROR,
    "billing_error": ErrorCode.QUOTA_EXCEEDED,
    "invalid_request_error": ErrorCode.INVALID_REQUEST,
    "context_length_exceeded": ErrorCode.INVALID_REQUEST,
    "not_found_error": ErrorCode.MODEL_ERROR,
    "overloaded_error": ErrorCode.SERVER_ERROR,
    "server_error": ErrorCode.SERVER_ERROR,
    "internal_server_error": ErrorCode.SERVER_ERROR,
    "api_error": ErrorCode.SERVER_ERROR,
    "timeout_error": ErrorCode.TIMEOUT,
}
_CODES_BY_WORDS: tuple[tuple[ErrorCode, tuple[str, ...]], ...] = (
    (ErrorCode.QUOTA_EXCEEDED, ("quota", "capacity", "credit", "billing", "balance", "欠费")),
    (
        ErrorCode.RATE_LIMIT_EXCEEDED,
        ("rate limit", "rate_limit", "429", "tpm limit", "too many requests", "requests per minute"),
    ),
    (ErrorCode.AUTH_ERROR, ("auth", "key", "apikey", "401", "forbidden", "permission")),
    (ErrorCode.INVALID_REQUEST, ("invalid", "bad request", "400", "format", "malformed", "parameter")),
    (ErrorCode.SERVER_ERROR, ("server", "500", "502", "503", "504", "529", "unavailable", "overloaded")),
    (ErrorCode.TIMEOUT, ("timeout", "timed out")),
    (ErrorCode.CONNECTION_ERROR, ("connect", "network", "unreachable", "dns")),
    (ErrorCode.CONTENT_FILTERED, ("filter", "content", "policy", "blocked", "safety", "inappropriate")),
    (ErrorCode.MODEL_ERROR, ("model", "not found", "does not exist", "not available", "max rounds")),
)
MAX_STATUS_PREFIX = 200  # characters searched for a leading status; the regex needs minutes for very many blanks
_LEADING_STATUS = re.compile(r"\W*(?:error code:?|http(?:/[\d.]+)?|status(?: code)?:?)?\s*([45]\d\d)\b", re.IGNORECASE)
TOOLS_REFUSED = (
    "(The server refuses tools for this model. Turn them on at the server; or declare the model without tools with "
    '`easel models add ... --no-tools`, and let the Agent ask for tools in its prompt: "tool_mode": "prompt".)'
)
_TOOLS = r"\b(?:tool|function[\s_-]?call)"
_NO_TOOLS = re.compile(
    rf"(?:not|n't) support\w*[^.]{{0,40}}{_TOOLS}"  # Ollama: "gemma does not support tools"
    rf"|no endpoints found that support[^.]{{0,40}}{_TOOLS}"  # OpenRouter
    rf"|unsupported[^.]{{0,40}}{_TOOLS}"
    rf"|{_TOOLS}[^.\[\]]{{0,60}}\brequires? --"  # vLLM and llama.cpp: a server option is not set
    rf"|{_TOOLS}[^.\[\]]{{0,60}}(?:not|n't) (?:be )?(?:supported|enabled|available)",
    re.IGNORECASE,
)
_MIN_SECRET_LENGTH = 8  # characters; a shorter secret may be part of a word, so only whole words are hidden
_MAX_DETAIL = 2000


def classify(message: str, status: int | None = None, names: Sequence[object] = ()) -> ErrorCode:
    """Return the code of a failure. `names` are the provider's `code` and `type`; a number among them is a status."""
    words = [name.lower() for name in names if isinstance(name, str)]
    for word in words:
        if word in _CODES_BY_NAME:
            return _CODES_BY_NAME[word]
    known = status or _status_among(names) or _leading_status(message)
    if known is not None:
        return _code_of_status(known)
    for word in words:
        if word in _CODES_BY_TYPE:
            return _CODES_BY_TYPE[word]
    return _code_of_words(message)


def provider_error(
    message: str,
    *,
    status: int | None = None,
    names: Sequence[object] = (),
    retry_after: float | None = None,
) -> ProviderError:
    """Return a ProviderError with the code of the failure; a long message (a proxy's HTML page) is truncated."""
    detail = " ".join(message.split()) if len(message) > _MAX_DETAIL else message.strip()
    return ProviderError(classify(message, status, names), detail[:_MAX_DETAIL], retry_after)


def is_tools_refusal(message: str) -> bool:
    """Return whether the message says that the model, or the server as configured, does not support tools."""
    return _NO_TOOLS.search(message[:_MAX_DETAIL]) is not None


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds that a provider asks to wait: `Retry-After-Ms`, or `Retry-After` in seconds or as a date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    text = headers.get("retry-after")
    seconds = _number(text)
    if text is None or seconds is not None:
        return None if seconds is None else max(0.0, seconds)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds())


def redact(text: str, *secrets: str) -> str:
    """Return the text with its secrets masked; some providers repeat keys in their error messages."""
    for secret in secrets:
        if len(secret) >= _MIN_SECRET_LENGTH:
            text = text.replace(secret, "***")
        elif secret:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text)
    return text


def _code_of_status(status: int) -> ErrorCode:
    if status >= 500:
        return ErrorCode.SERVER_ERROR
    return _CODES_BY_STATUS.get(status, ErrorCode.INVALID_REQUEST)


def _status_among(names: Sequence[object]) -> int | None:
    for name in names:
        if isinstance(name, int | str) and re.fullmatch(r"[45]\d\d", str(name)):
            return int(name)
    return None


def _leading_status(message: str) -> int | None:
    found = _LEADING_STATUS.match(message[:MAX_STATUS_PREFIX])
    return int(found.group(1)) if found else None


def _code_of_words(message: str) -> ErrorCode:
    text = message.lower()
    return next(
        (code for code, words in _CODES_BY_WORDS if any(word in text for word in words)), ErrorCode.GENERIC_ERROR
    )


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and value == value and abs(value) != float("inf") else None
