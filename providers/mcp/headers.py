"""The headers of requests to an MCP server: templates, filled from what the tenant has stored (tools 7, T17).

`$name` and `${name}` stand for variables, in keys and values; what no variable fills stays as it is written. A header
that would carry nothing is left out: one without a name, without a value, or with nothing behind `Bearer`. What a
placeholder without a value would have filled counts as nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Template

from canvas.document.secret_fields import HARMLESS_HEADERS
from providers.http.redirects import secrets_of_url

_BARE = "bearer"
_SHORTEST = 4  # characters of a secret; anything shorter would take ordinary words out of texts


@dataclass(frozen=True, slots=True)
class Filled:
    """Headers as they are sent, and the names of those that were left out, as they are written."""

    headers: Mapping[str, str] = field(repr=False)
    dropped: tuple[str, ...] = ()


def filled(templates: Mapping[str, str], variables: Mapping[str, str], custom: Mapping[str, str]) -> Filled:
    """The server's own headers, filled from its variables; the caller's, filled from themselves, override them."""
    headers: dict[str, str] = {}
    dropped: list[str] = []
    for source, values in ((templates, variables), (custom, custom)):
        for written_name, written in source.items():
            name, value = _fill(written_name, values).strip(), _fill(written, values).strip()
            if not name or _is_bare(_without_placeholders(value)):
                dropped.append(written_name)
                continue
            for other in [known for known in headers if known.lower() == name.lower()]:
                del headers[other]
            headers[name] = value
    return Filled(headers, tuple(dropped))


def secrets_of(headers: Mapping[str, str], variables: Mapping[str, str], url: str = "") -> tuple[str, ...]:
    """What may show in no text: values of variables, of headers (also without their scheme) and of the address."""
    sent = [value for name, value in headers.items() if name.lower() not in HARMLESS_HEADERS]
    bare = (value.partition(" ")[2].strip() for value in sent)
    values = {*variables.values(), *sent, *bare, *secrets_of_url(url)}
    return tuple(sorted((value for value in values if len(value) >= _SHORTEST), key=lambda value: (-len(value), value)))


def _fill(text: str, values: Mapping[str, str]) -> str:
    return Template(text).safe_substitute(values)


def _without_placeholders(value: str) -> str:
    """A value without the placeholders that nothing has filled."""
    return Template(value).safe_substitute(_Nothing())


class _Nothing(dict[str, str]):
    """Every variable is there, and empty."""

    def __missing__(self, key: str) -> str:
        return ""


def _is_bare(value: str) -> bool:
    return value.strip().lower() in ("", _BARE)
