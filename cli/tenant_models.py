"""The models that commands ask by themselves: vectors of what they store and search, and ranks."""

from collections.abc import Sequence

from cli.connection import Connection
from knowledge.models import TenantModels, first_of
from providers.accounts import Account, accounts_from_toml
from providers.catalogue import Limits, resolve
from providers.embedding import EMBEDDING
from store.sealing import SealingKey


def models_of(connection: Connection) -> TenantModels:
    """The models of every tenant, by the rows and settings of this command."""
    settings = connection.found.settings
    shared = accounts_from_toml(settings.models_file) if settings.models_file else ()
    limits = Limits(request_timeout=settings.llm_timeout)
    return TenantModels(connection.database, shared, limits, SealingKey.of(settings.sealing_secret()))


def embedding_of(accounts: Sequence[Account], named: str | None) -> str:
    """The embedding model for something new: the named one, else the tenant's first one; "" if there is none.

    Raises ModelError for a model that the tenant cannot use.
    """
    chosen = named or first_of(accounts, EMBEDDING) or ""
    if chosen:
        resolve(chosen, accounts, kind=EMBEDDING)
    return chosen


def searched_by(model: str) -> str:
    """What a search goes by, in words; `model` is "" where there are no vectors."""
    return f"vectors of {model} and words" if model else "words alone"
