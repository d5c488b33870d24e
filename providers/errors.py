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


class Code(StrEnum):
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


REPEATABLE = frozenset({Code.RATE_LIMIT_EXCEEDED, Code.SERVER_ERROR, Code.TIMEOUT, Code.CONNECTION_ERROR})
"""Codes of failures that may not occur again if the same request is repeated."""


class ProviderError(Exception):
    """One request to a provider failed. The caller repeats it or ends the answer with an ErrorDelta."""

    def __init__(self, code: Code, detail: str, retry_after: float | None = None) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.retry_after = retry_after  # seconds that the provider asks the caller to wait

    @property
    def may_be_repeated(self) -> bool:
        """Return whether repeating the request may help."""
        return self.code in REPEATABLE


_EXACT = {
    "insufficient_quota": Code.QUOTA_EXCEEDED,  # arrives as a 429, but waiting does not help
    "billing_hard_limit_reached": Code.QUOTA_EXCEEDED,
    "billing_not_active": Code.QUOTA_EXCEEDED,
    "content_filter": Code.CONTENT_FILTERED,
    "content_policy_violation": Code.CONTENT_FILTERED,
    "model_not_found": Code.MODEL_ERROR,
    "api_key_invalid": Code.AUTH_ERROR,  # Gemini's, as a 400
    "modelerrorexception": Code.SERVER_ERROR,  # Bedrock's, as a 424
    "servicequotaexceededexception": Code.QUOTA_EXCEEDED,  # likewise, as a 400
}
_STATUSES = {
    401: Code.AUTH_ERROR,
    402: Code.QUOTA_EXCEEDED,
    403: Code.AUTH_ERROR,
    404: Code.MODEL_ERROR,
    408: Code.TIMEOUT,
    409: Code.SERVER_ERROR,  # a conflict inside the provider: the request is fine and may be sent again
    429: Code.RATE_LIMIT_EXCEEDED,
    451: Code.CONTENT_FILTERED,
}
_BROAD = {
    "rate_limit_exceeded": Code.RATE_LIMIT_EXCEEDED,
    "rate_limit_error": Code.RATE_LIMIT_EXCEEDED,
    "authentication_error": Code.AUTH_ERROR,
    "invalid_api_key": Code.AUTH_ERROR,
    "permission_error": Code.AUTH_ERROR,
    "billing_error": Code.QUOTA_EXCEEDED,
    "invalid_request_error": Code.INVALID_REQUEST,
    "context_length_exceeded": Code.INVALID_REQUEST,
    "not_found_error": Code.MODEL_ERROR,
    "overloaded_error": Code.SERVER_ERROR,
    "server_error": Code.SERVER_ERROR,
    "internal_server_error": Code.SERVER_ERROR,
    "api_error": Code.SERVER_ERROR,
    "timeout_error": Code.TIMEOUT,
}
_WORDS: tuple[tuple[Code, tuple[str, ...]], ...] = (
    (Code.QUOTA_EXCEEDED, ("quota", "capacity", "credit", "billing", "balance", "欠费")),
    (
        Code.RATE_LIMIT_EXCEEDED,
        ("rate limit", "rate_limit", "429", "tpm limit", "too many requests", "requests per minute"),
    ),
    (Code.AUTH_ERROR, ("auth", "key", "apikey", "401", "forbidden", "permission")),
    (Code.INVALID_REQUEST, ("invalid", "bad request", "400", "format", "malformed", "parameter")),
    (Code.SERVER_ERROR, ("server", "500", "502", "503", "504", "529", "unavailable", "overloaded")),
    (Code.TIMEOUT, ("timeout", "timed out")),
    (Code.CONNECTION_ERROR, ("connect", "network", "unreachable", "dns")),
    (Code.CONTENT_FILTERED, ("filter", "content", "policy", "blocked", "safety", "inappropriate")),
    (Code.MODEL_ERROR, ("model", "not found", "does not exist", "not available", "max rounds")),
)
LONGEST_BEGINNING = 200  # characters searched for a leading status; the regex needs minutes for very many blanks
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
_SHORT_SECRET = 8  # characters; a shorter secret may be part of a word, so only whole words are hidden
_LONGEST_DETAIL = 2000


def classify(message: str, status: int | None = None, names: Sequence[object] = ()) -> Code:
    """Return the code of a failure. `names` are the provider's `code` and `type`; a number among them is a status."""
    words = [name.lower() for name in names if isinstance(name, str)]
    for word in words:
        if word in _EXACT:
            return _EXACT[word]
    known = status or _status_among(names) or _leading_status(message)
    if known is not None:
        return _code_of_status(known)
    for word in words:
        if word in _BROAD:
            return _BROAD[word]
    return _code_of_words(message)


def failure(
    message: str,
    *,
    status: int | None = None,
    names: Sequence[object] = (),
    retry_after: float | None = None,
) -> ProviderError:
    """Return a ProviderError with the code of the failure; a long message (a proxy's HTML page) is truncated."""
    detail = " ".join(message.split()) if len(message) > _LONGEST_DETAIL else message.strip()
    return ProviderError(classify(message, status, names), detail[:_LONGEST_DETAIL], retry_after)


def refuses_tools(message: str) -> bool:
    """Return whether the message says that the model, or the server as configured, does not support tools."""
    return _NO_TOOLS.search(message[:_LONGEST_DETAIL]) is not None


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
        if len(secret) >= _SHORT_SECRET:
            text = text.replace(secret, "***")
        elif secret:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text)
    return text


def _code_of_status(status: int) -> Code:
    if status >= 500:
        return Code.SERVER_ERROR
    return _STATUSES.get(status, Code.INVALID_REQUEST)


def _status_among(names: Sequence[object]) -> int | None:
    for name in names:
        if isinstance(name, int | str) and re.fullmatch(r"[45]\d\d", str(name)):
            return int(name)
    return None


def _leading_status(message: str) -> int | None:
    found = _LEADING_STATUS.match(message[:LONGEST_BEGINNING])
    return int(found.group(1)) if found else None


def _code_of_words(message: str) -> Code:
    text = message.lower()
    return next((code for code, words in _WORDS if any(word in text for word in words)), Code.GENERIC_ERROR)


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and value == value and abs(value) != float("inf") else None
