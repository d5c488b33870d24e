"""Callbacks as callers write them: the addresses that are allowed, and the list in the options of a start."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from canvas.errors import AddressRefused, InvalidRequest, NotFound
from canvas.ids import TenantId
from providers.address_policy import Guard, check_without_look_up
from store.db.transaction import Transaction
from store.tenants import callbacks
from store.tenants.callbacks import MAX_OF_RUN, CallbackEvent, Include, RunCallback

MAX_URL = 2000  # characters
FIELDS = ("id", "url", "events", "include", "secret")


def check_url(written: str, guard: Guard, field: str = "url") -> str:
    """Return an address that callbacks may have. Raises InvalidRequest, which names the field and the remedy.

    It must be https, or http to a host that the deployment allows. A host name is resolved and checked again whenever
    a callback is sent.
    """
    try:
        parsed = urlsplit(written)
        host, port = parsed.hostname or "", parsed.port
    except ValueError:
        raise _invalid(field, "is not an address. Write https://example.com/path.") from None
    if len(written) > MAX_URL or not written.isascii() or not written.isprintable() or " " in written:
        raise _invalid(field, f"must have {MAX_URL} ASCII characters at most, without blanks.")
    if parsed.scheme not in ("https", "http") or not host:
        raise _invalid(field, "must be an address with https, such as https://example.com/path.")
    if parsed.username is not None or parsed.password is not None:
        raise _invalid(field, "has a user or a password. Remove it: the signature shows who sends.")
    if parsed.fragment:
        raise _invalid(field, "has a fragment (`#…`), which is never sent. Remove it.")
    try:
        is_allowed = check_without_look_up(host, port or (443 if parsed.scheme == "https" else 80), guard)
    except AddressRefused as error:
        reason = error.message.rstrip(".")
        raise _invalid(field, f"is refused: {reason}. Operators allow hosts with SSRF_ALLOW.") from None
    if parsed.scheme == "http" and not is_allowed:
        raise _invalid(field, "must be https. http is for private hosts that the operators list in SSRF_ALLOW.")
    return written


def check_names(written: Any, allowed: Collection[str], field: str) -> list[str]:
    """Return a list of names, each once. Raises InvalidRequest, which lists the allowed ones."""
    if not isinstance(written, list) or not all(isinstance(each, str) for each in written):
        raise _invalid(field, f"must be a list with some of: {', '.join(allowed)}.")
    unknown = next((each for each in written if each not in allowed), None)
    if unknown is not None:
        raise _invalid(field, f"has {unknown[:64]!r}. It is a list with some of: {', '.join(allowed)}.")
    return list(dict.fromkeys(written))


def check_events(written: Any, field: str = "events") -> list[str]:
    """Return the events of a callback, by default all. Raises InvalidRequest, also for an empty list."""
    events = check_names(list(CallbackEvent) if written is None else written, list(CallbackEvent), field)
    if not events:
        raise _invalid(field, "is empty. Name an event, or leave the field out for all of them.")
    return events


def check_include(written: Any, field: str = "include") -> list[str]:
    """Return what else the bodies of a callback have. Raises InvalidRequest."""
    return check_names([] if written is None else written, list(Include), field)


def refuse_secrets(written: object) -> None:
    """Raise InvalidRequest for a callback with a secret: a message broker stores what is sent through it."""
    entries: list[Any] = written if isinstance(written, list) else []
    for number, each in enumerate(entries):
        if isinstance(each, dict) and "secret" in each:
            raise _invalid(
                f"callbacks[{number}].secret",
                "cannot be sent in a message, since brokers store messages. Leave it out, and the tenant's secret "
                "signs; or name a stored callback by its `id`.",
            )


def parse_callbacks(tx: Transaction, tenant_id: TenantId, written: Any, guard: Guard) -> tuple[RunCallback, ...]:
    """Return the callbacks of a run: [{url, events, include, secret}], or with the `id` of a stored one for its url.

    Raises InvalidRequest, and NotFound for a stored callback that the tenant does not have.
    """
    if not isinstance(written, Sequence) or isinstance(written, str):
        raise _invalid("callbacks", "must be a list of objects: {url, events, include, secret}, or {id, events}.")
    if len(written) > MAX_OF_RUN:
        raise _invalid("callbacks", f"has {len(written)} entries, and a run has {MAX_OF_RUN} at most.")
    return tuple(_parse(tx, tenant_id, each, guard, f"callbacks[{number}]") for number, each in enumerate(written))


def _parse(tx: Transaction, tenant_id: TenantId, written: Any, guard: Guard, place: str) -> RunCallback:
    if not isinstance(written, Mapping):
        raise _invalid(place, "must be an object: {url, events, include, secret}, or {id, events}.")
    fields = {name: value for name, value in written.items() if value is not None}
    unknown = next((name for name in fields if name not in FIELDS), None)
    if unknown is not None:
        raise _invalid(f"{place}.{unknown[:64]}", f"is not a field. The fields are: {', '.join(FIELDS)}.")
    events = check_events(fields.get("events"), f"{place}.events")
    include = check_include(fields.get("include"), f"{place}.include")
    if "id" not in fields:
        url, secret = fields.get("url"), fields.get("secret")
        if not isinstance(url, str):
            raise _invalid(f"{place}.url", "is missing. Write an address with https, or the `id` of a stored callback.")
        if secret is not None and not isinstance(secret, str):
            raise _invalid(f"{place}.secret", "must be a text.")
        checked = callbacks.check_secret(secret, f"{place}.secret") if secret is not None else None
        return RunCallback(events, include, check_url(url, guard, f"{place}.url"), secret=checked)
    for name in ("url", "secret"):
        if name in fields:
            raise _invalid(f"{place}.{name}", "and `id` exclude each other: the stored callback has both.")
    try:
        stored = callbacks.get(tx, tenant_id, UUID(str(fields["id"])))
    except (ValueError, NotFound):
        raise NotFound(f"`{place}.id`: there is no stored callback {str(fields['id'])[:64]}.") from None
    if stored.disabled_at is not None:
        raise _invalid(f"{place}.id", "names a callback that is disabled. Enable it, or name another.")
    return RunCallback(events, include, stored_id=stored.id)


def _invalid(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"`{field}` {problem}", field=field)
