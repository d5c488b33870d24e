"""Builds the headers of requests to an MCP server from templates and the variables that the tenant has stored.

`$name` and `${name}` are placeholders for variables, in header names and values. A placeholder without a variable stays
as written. Headers without a name, without a value, or with an empty token after `Bearer` are dropped; for this check a
placeholder without a variable counts as empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Template

from canvas.document.secret_fields import HARMLESS_HEADERS
from providers.http.redirects import secrets_of_url

_BEARER = "bearer"
_MIN_SECRET_LENGTH = 4  # characters of a secret; masking a shorter text would hit ordinary words


@dataclass(frozen=True, slots=True)
class FilledHeaders:
    """The headers to send, and the names of dropped headers as written in the template."""

    headers: Mapping[str, str] = field(repr=False)
    dropped: tuple[str, ...] = ()


def fill_headers(
    templates: Mapping[str, str], variables: Mapping[str, str], custom: Mapping[str, str]
) -> FilledHeaders:
    """Fill the server's headers from its variables, and the caller's `custom` headers from themselves.

    The caller's headers override the server's.
    """
    headers: dict[str, str] = {}
    dropped: list[str] = []
    for source, values in ((templates, variables), (custom, custom)):
        for written_name, written in source.items():
            name, value = _fill(written_name, values).strip(), _fill(written, values).strip()
            if not name or _is_empty_value(_without_placeholders(value)):
                dropped.append(written_name)
                continue
            for other in [known for known in headers if known.lower() == name.lower()]:
                del headers[other]
            headers[name] = value
    return FilledHeaders(headers, tuple(dropped))


def secrets_of(headers: Mapping[str, str], variables: Mapping[str, str], url: str = "") -> tuple[str, ...]:
    """Return the texts to mask: values of variables, of headers (with and without their scheme) and of the URL."""
    sent = [value for name, value in headers.items() if name.lower() not in HARMLESS_HEADERS]
    bare = (value.partition(" ")[2].strip() for value in sent)
    values = {*variables.values(), *sent, *bare, *secrets_of_url(url)}
    return tuple(
        sorted((value for value in values if len(value) >= _MIN_SECRET_LENGTH), key=lambda value: (-len(value), value))
    )


def _fill(text: str, values: Mapping[str, str]) -> str:
    return Template(text).safe_substitute(values)


def _without_placeholders(value: str) -> str:
    """Return a value with its remaining placeholders replaced by nothing."""
    return Template(value).safe_substitute(_EmptyVariables())


class _EmptyVariables(dict[str, str]):
    """A mapping in which every variable exists and is empty."""

    def __missing__(self, key: str) -> str:
        return ""


def _is_empty_value(value: str) -> bool:
    return value.strip().lower() in ("", _BEARER)
