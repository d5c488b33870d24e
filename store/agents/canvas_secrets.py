"""Secrets of canvases in the database: keys of tools, passwords of databases, tokens of webhooks.

In `canvases.draft` and `versions.dsl` a secret is stored sealed, as the text `easel-sealed:1:` followed by its value,
encrypted with the deployment's key. It can be opened only in the same parameter of the same component of the same
canvas. Sealing is deterministic (AES-SIV): the same document gives the same text, so a save without changes creates no
version.

Replies show a mask, `••••` followed by eight digits that distinguish the secrets of a canvas. A saved document in which
a mask comes back keeps the secret that the mask stands for, even if its node was moved. Sealed text in a document from
outside is kept if the canvas already contains it in that place, and refused otherwise, so that a copied row cannot be
opened elsewhere. Sealed text in undeclared parameters (their plugin is not loaded) is masked and kept as well.

References inside a secret (`Bearer sk-live {sys.user_id}`) are resolved after the secret is opened. They are repeated
in readable form after the sealed value, so that code that orders nodes or prepares values sees them.
"""

import hashlib
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from sqlalchemy import bindparam, select

from canvas.document import references
from canvas.document.secret_fields import Declarations, SecretPosition, change_secrets, change_secrets_in_params
from canvas.errors import InvalidCanvas
from canvas.ids import CanvasId, TenantId
from store.db.transaction import Transaction
from store.primitives.encryption import CannotUnseal, EncryptionKey
from store.primitives.json_codec import encode
from store.tables.tenants import canvases, versions

PREFIX = "easel-sealed:1:"
_MASKED = "••••"
_MASK = re.compile(_MASKED + r"[0-9a-f]{8}")
_SEALED = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_-]*(?: \{[^{}\s]*\})*")

_UNDECLARED = ("", "")  # component and field of sealed text in undeclared parameters
_NO_KEY = "this process has no sealing key for secrets. Set EASEL_SECRET_KEY."

CANVAS_IDS = select(canvases.c.tenant_id, canvases.c.id).order_by(canvases.c.id)
ORPHANED_IDS = (
    select(versions.c.tenant_id, versions.c.canvas_id.label("id"))
    .where(versions.c.canvas_id.not_in(select(canvases.c.id)))
    .distinct()
)
RECENT_DRAFTS = (
    select(canvases.c.tenant_id, canvases.c.id, canvases.c.draft)
    .order_by(canvases.c.updated_at.desc())
    .limit(bindparam("most"))
    .subquery()
)
# the inner limit bounds how many drafts are read; reading stops at the first one with a sealed secret
SEALED_DRAFT = select(RECENT_DRAFTS).where(sa.cast(RECENT_DRAFTS.c.draft, sa.Text).like(bindparam("sign"))).limit(1)
_this_canvas = (canvases.c.tenant_id == bindparam("of_tenant"), canvases.c.id == bindparam("of_canvas"))
_its_versions = (versions.c.tenant_id == bindparam("of_tenant"), versions.c.canvas_id == bindparam("of_canvas"))
DRAFT = select(canvases.c.draft).where(*_this_canvas).with_for_update()
PUT_DRAFT = sa.update(canvases).where(*_this_canvas).values(draft=bindparam("new_draft"))
DOCUMENTS = select(versions.c.id, versions.c.dsl).where(*_its_versions).with_for_update()
PUT_DOCUMENT = (
    sa.update(versions)
    .where(versions.c.id == bindparam("version_id"))
    .values(dsl=bindparam("new_dsl"), digest=bindparam("new_digest"))
)
OLD_DOCUMENTS = select(versions.c.dsl).where(*_its_versions).order_by(versions.c.created_at.desc())


def is_mask(value: Any) -> bool:
    """Return whether a value is a mask, which replies show in place of a secret; blanks around it are ignored."""
    return isinstance(value, str) and _MASK.fullmatch(value.strip()) is not None


def is_sealed(value: Any) -> bool:
    """Return whether a value is a sealed secret."""
    return isinstance(value, str) and value.startswith(PREFIX)


def holds_sealed(value: Any) -> bool:
    """Return whether a JSON value contains sealed text, also within JSON text (headers, for example)."""
    match value:
        case str():
            return PREFIX in value
        case Mapping():
            return any(holds_sealed(member) for member in value.values())
        case list() | tuple():
            return any(holds_sealed(item) for item in value)
        case _:
            return False


@dataclass(frozen=True, slots=True)
class CanvasSecrets:
    """Seals, masks and opens the secrets of one canvas. `declared`: which parameters are secrets."""

    tenant_id: TenantId
    canvas_id: CanvasId
    declared: Declarations
    cipher: AESSIV | None = field(repr=False)  # None: this process has no key

    @classmethod
    def for_canvas(
        cls, key: EncryptionKey | None, tenant_id: TenantId, canvas_id: CanvasId, declared: Declarations
    ) -> "CanvasSecrets":
        """Return the secrets of a canvas under the deployment's key, if the process has one."""
        cipher = AESSIV(key.derive(b"easel: secrets of canvases", 64)) if key is not None else None
        return cls(tenant_id, canvas_id, declared, cipher)

    def seal_document(
        self, document: Mapping[str, Any], before: Callable[[], Iterable[Mapping[str, Any]]] = tuple
    ) -> dict[str, Any]:
        """Return a document from outside as it is to be stored, with its secrets sealed.

        `before` returns the canvas's stored documents, which explain masks. Raises InvalidCanvas for a mask or a sealed
        text that does not stand for a secret of this canvas, for a mask among other characters, and without a key.
        """
        secrets: dict[tuple[str, str, str], str] = {}
        older = map(self._secrets_by_text, before())

        def find_secret(component: str, field: str, text: str) -> str | None:
            key = (component, field, text)
            while (found := secrets.get(key)) is None and (more := next(older, None)) is not None:
                secrets.update(more)
            return found

        def seal(place: SecretPosition, value: Any) -> str:
            text = value.strip() if isinstance(value, str) else ""
            if not is_sealed(text) and _MASKED not in text:
                return self._seal(place, value)
            if (found := find_secret(place.component, place.field, text)) is not None:
                return found
            raise InvalidCanvas(f"{place} {_refusal_reason(text)}", node=place.node, field=place.field)

        def restore(text: str) -> str:
            return _MASK.sub(lambda mask: find_secret(*_UNDECLARED, mask[0]) or mask[0], text)

        sealed = change_secrets(document, self.declared, seal)
        is_masked = any(_MASKED in text for text in references.texts_in(sealed))
        return _map_texts(sealed, restore) if is_masked else sealed

    def seal_plain_text(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a stored document with those secrets sealed that are still in plain text."""
        return change_secrets(document, self.declared, self._seal_unless_sealed)

    def mask_document(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a stored document as replies show it, with masks in place of secrets."""

        def mask(place: SecretPosition, value: Any) -> str:
            if self.cipher is None and not is_sealed(value):
                return f"{_MASKED}{'0' * 8}"  # the real mask is computed from the sealed value, which needs the key
            return _mask(self._seal_unless_sealed(place, value))

        shown = change_secrets(document, self.declared, mask)
        if not holds_sealed(shown):
            return shown
        return _map_texts(shown, lambda text: _SEALED.sub(lambda sealed: _mask(sealed[0]), text))

    def open_document(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a stored document with its secrets in plain text. Raises CannotUnseal, which names node and field."""
        return change_secrets(document, self.declared, self._open)

    def open_params(self, place: SecretPosition, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the stored parameters of one node with their secrets in plain text. Raises CannotUnseal."""
        return change_secrets_in_params(place, params, self.declared, self._open)

    def find_secrets(self, place: SecretPosition, params: Mapping[str, Any]) -> list[str]:
        """Return the texts of the secrets in one node's stored parameters. Raises CannotUnseal."""
        found: list[str] = []

        def note(position: SecretPosition, value: Any) -> Any:
            opened = self._open(position, value)
            found.extend(references.texts_in(opened))
            return opened

        change_secrets_in_params(place, params, self.declared, note)
        return found

    def find_all(self, document: Mapping[str, Any]) -> list[str]:
        """Return the texts of all secrets in a stored document; those that do not open are left out."""
        found: list[str] = []

        def note(place: SecretPosition, value: Any) -> Any:
            with suppress(CannotUnseal):
                found.extend(references.texts_in(self._open(place, value)))
            return value

        change_secrets(document, self.declared, note)
        return found

    def _secrets_by_text(self, document: Mapping[str, Any]) -> dict[tuple[str, str, str], str]:
        """Return what masks and sealed texts of a stored document stand for, by component, field and text.

        Sealed texts in undeclared parameters have an empty component and field.
        """
        by_text: dict[tuple[str, str, str], str] = {}

        def note(place: SecretPosition, value: Any) -> str:
            sealed = self._seal_unless_sealed(place, value)
            by_text[place.component, place.field, _mask(sealed)] = sealed
            by_text[place.component, place.field, sealed] = sealed
            return ""

        rest = change_secrets(document, self.declared, note)
        for text in references.texts_in(rest):
            for sealed in _SEALED.findall(text):
                by_text[*_UNDECLARED, _mask(sealed)] = sealed
        return by_text

    def _seal_unless_sealed(self, place: SecretPosition, value: Any) -> str:
        return value if is_sealed(value) else self._seal(place, value)

    def _seal(self, place: SecretPosition, value: Any) -> str:
        if self.cipher is None:
            raise InvalidCanvas(f"{place}: {_NO_KEY}", node=place.node, field=place.field)
        body = self.cipher.encrypt(json.dumps(value).encode(), [self._belongs_to(place)])
        return PREFIX + urlsafe_b64encode(body).decode().rstrip("=") + _references_in(value)

    def _open(self, place: SecretPosition, value: Any) -> Any:
        if not is_sealed(value):
            return value  # stored before secrets were sealed
        if self.cipher is None:
            raise CannotUnseal(f"{place}: {_NO_KEY}")
        body = value.removeprefix(PREFIX).partition(" ")[0]
        try:
            sealed = urlsafe_b64decode(body + "=" * (-len(body) % 4))
            return json.loads(self.cipher.decrypt(sealed, [self._belongs_to(place)]))
        except (InvalidTag, ValueError) as error:
            raise CannotUnseal(
                f"{place} does not open: EASEL_SECRET_KEY is not the one it was sealed with. Set that key for every "
                "process, or type the secret in again, save and publish."
            ) from error

    def _belongs_to(self, place: SecretPosition) -> bytes:
        return f"canvases/{self.tenant_id}/{self.canvas_id}/{place.component}/{place.field}".encode()


def _mask(sealed: str) -> str:
    return f"{_MASKED}{hashlib.sha256(sealed.encode()).hexdigest()[:8]}"


def _references_in(value: Any) -> str:
    """Return the references in a secret, each in braces and preceded by a blank."""
    matches = references.find(value, with_aliases=True) if isinstance(value, str) else []
    return "".join(f" {{{expression}}}" for expression in dict.fromkeys(each.expression for each in matches))


def _refusal_reason(text: str) -> str:
    """Return why a masked or sealed value is not stored, and what to do."""
    if is_mask(text):
        return "is masked, and this canvas has no secret that the mask stands for. Type the secret in."
    if is_sealed(text):
        return f"begins with {PREFIX}, and this canvas holds no such secret there. Type the secret in as it is."
    return f"has {_MASKED} among other characters, so it is not a valid mask. Type in the whole secret."


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a copy of a JSON value with every text changed, except keys."""
    match value:
        case str():
            return change(value)
        case Mapping():
            return {key: _map_texts(member, change) for key, member in value.items()}
        case list() | tuple():
            return [_map_texts(item, change) for item in value]
        case _:
            return value


# -- what is stored ---------------------------------------------------------------------------------------------------


def seal_saved(
    tx: Transaction, secrets: CanvasSecrets, document: Mapping[str, Any], draft: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a document that is saved over a draft, with its secrets sealed.

    A mask in it stands for a secret of that draft or of a version, newest first. Versions are read only if the draft
    does not explain a mask. Raises InvalidCanvas like `CanvasSecrets.seal_document`.
    """

    def before() -> Iterator[Mapping[str, Any]]:
        yield draft
        for row in tx.rows(OLD_DOCUMENTS, of_tenant=secrets.tenant_id, of_canvas=secrets.canvas_id):
            yield row.dsl

    return secrets.seal_document(document, before)


def find_sealed_draft(tx: Transaction, most: int) -> tuple[TenantId, CanvasId, Mapping[str, Any]] | None:
    """Return tenant, id and draft of one canvas with sealed secrets; None if there is none.

    Looks at the `most` drafts that were changed last.
    """
    rows = tx.rows(SEALED_DRAFT, sign=f"%{PREFIX}%", most=most)
    return (rows[0].tenant_id, rows[0].id, rows[0].draft) if rows else None


def list_all_canvases(tx: Transaction) -> list[tuple[TenantId, CanvasId]]:
    """Return tenant and id of every canvas, and of deleted ones whose versions are still in use."""
    return [(row.tenant_id, row.id) for statement in (CANVAS_IDS, ORPHANED_IDS) for row in tx.rows(statement)]


def seal_stored(tx: Transaction, secrets: CanvasSecrets) -> int:
    """Seal secrets that are in plain text in a canvas's draft and versions; return how many documents changed."""
    ids = {"of_tenant": secrets.tenant_id, "of_canvas": secrets.canvas_id}
    number = 0
    for row in tx.rows(DRAFT, **ids):
        sealed = secrets.seal_plain_text(row.draft)
        if sealed != row.draft:
            tx.execute(PUT_DRAFT, **ids, new_draft=sealed)
            number += 1
    for row in tx.rows(DOCUMENTS, **ids):
        sealed = secrets.seal_plain_text(row.dsl)
        if sealed != row.dsl:
            digest = hashlib.sha256(encode(sealed).encode()).digest()
            tx.execute(PUT_DOCUMENT, version_id=row.id, new_dsl=sealed, new_digest=digest)
            number += 1
    return number
