"""Resolves the model ids of canvases, and opens chat models (docs/models.md#names).

An id is the id of a stored model, `model@Factory`, `model@instance@Factory`, `model@Factory#instance`, or a bare model
name. RAGFlow stores models of some factories with a suffix (`model___VLLM@VLLM`), which is never sent to the server. An
id is looked up in the tenant's accounts; `vendors.toml` supplies what an account does not set. The ids `scripted` and
`echo` select the built-in models; they are never used as a fallback.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from canvas.errors import ModelError
from providers.models.billing import price_list
from providers.models.chat.dialects import default_base_url, dialect_of, normalize_base_url, open_wire, with_version
from providers.models.chat.echo import EchoWire, echo_spec
from providers.models.chat.retrying_model import RetryingModel, RetryPolicy
from providers.models.chat.scripted import Script, ScriptedWire, load_script, scripted_spec
from providers.models.limits.rate_limited_wire import RateLimitedWire, RequestLimiter
from providers.models.text.context_window import FALLBACK_CONTEXT
from providers.models.types.chat import ChatModel, ModelSpec
from providers.models.vendors.accounts import AccountModel, VendorAccount, accounts_from_toml, kinds_of, split_api_key
from providers.models.vendors.families import own_families
from providers.models.vendors.vendors import UNLISTED, Vendor, vendors
from providers.models.wires.anthropic import AnthropicWire
from providers.models.wires.gemini import GeminiWire
from providers.models.wires.openai import OpenAIWire
from providers.models.wires.openai_sdk import RequestLimits
from providers.rate_limits import RateLimitKey, RateLimits

__all__ = [
    "BUILTIN_FACTORY",
    "AccountModel",
    "RequestLimits",
    "Vendor",
    "VendorAccount",
    "accounts_from_toml",
    "kinds_of",
    "open_chat",
    "resolve",
    "vendors",
    "with_version",
]

BUILTIN_FACTORY = "Easel"  # the factory of the built-in models


def resolve(
    llm_id: str, accounts: Sequence[VendorAccount], table: Mapping[str, Vendor] | None = None, *, kind: str = "chat"
) -> ModelSpec:
    """Return the model that `llm_id` names, looked up in the tenant's accounts.

    Vision models are accepted as chat models. Raises a ModelError that names the provider, the model and what to do.
    """
    known = vendors() if table is None else table
    builtin = _builtin_spec(llm_id, accounts)
    if builtin is not None:
        return builtin
    account, name = _find_by_id(llm_id, accounts) or _find_by_name(llm_id, accounts, known)
    return _spec(llm_id, account, name, known.get(account.factory, UNLISTED), kind)


def open_chat(
    spec: ModelSpec,
    limits: RequestLimits | None = None,
    *,
    scripted: Script | None = None,
    retry_policy: RetryPolicy | None = None,
    limiter: RequestLimiter | None = None,
) -> ChatModel:
    """Return a chat model for a resolved spec. If `scripted` is set, it answers in place of that model.

    Requests wait for the rate limits of `limiter`, if there is one; those of built-in models do not.

    Raises ModelError if a package for the vendor is missing, or the scripted model has no rules.
    """
    if scripted is not None:
        return RetryingModel(replace(spec, is_builtin=True), ScriptedWire(scripted, spec.id), retry_policy)
    if spec.is_builtin:
        return RetryingModel(spec, EchoWire() if spec.name == "echo" else _scripted_wire(spec), retry_policy)
    wire = open_wire(
        spec, limits or RequestLimits(), observe_headers=limiter.observe_headers if limiter is not None else None
    )
    if limiter is None:
        return RetryingModel(spec, wire, retry_policy)
    return RetryingModel(
        spec,
        RateLimitedWire(
            wire, limiter, wire.prepare if isinstance(wire, OpenAIWire | AnthropicWire | GeminiWire) else None
        ),
        retry_policy,
    )


# -- which account and model an id names -----------------------------------------------------------------------------


def _builtin_spec(llm_id: str, accounts: Sequence[VendorAccount]) -> ModelSpec | None:
    name, _, factory = llm_id.partition("@")
    if name not in ("scripted", "echo") or factory not in ("", BUILTIN_FACTORY):
        return None
    if name == "echo":
        return echo_spec(llm_id)
    extra = next((account.extra for account in accounts if account.factory == BUILTIN_FACTORY), {})
    return scripted_spec(llm_id, extra)


def _find_by_id(llm_id: str, accounts: Sequence[VendorAccount]) -> tuple[VendorAccount, str] | None:
    for account in accounts:
        for name, model in account.models.items():
            if llm_id and model.id == llm_id:
                return account, name
    return None


def _find_by_name(
    llm_id: str, accounts: Sequence[VendorAccount], known: Mapping[str, Vendor]
) -> tuple[VendorAccount, str]:
    parts = _split_id(llm_id, accounts)
    if parts is None:
        raise ModelError(
            f'"{llm_id}" is not a valid model id. Write it as model@Factory.', kind="MODEL_ERROR", model=llm_id
        )
    name, instance, factory = parts
    if not factory:
        account = _find_account(name, accounts, known)
        return account, _listed_name(account, name, known)
    offered = [account for account in accounts if account.factory == factory]
    if not offered:
        raise _model_error(
            f"Provider {factory} not found for model {name}. Add an account for {factory}.", factory, name
        )
    account = _find_instance(offered, instance, factory, name)
    return account, _listed_name(account, name, known)


def _split_id(llm_id: str, accounts: Sequence[VendorAccount]) -> tuple[str, str | None, str] | None:
    """Return (name, instance, factory) of an id, with factory "" for a bare name; None if the id is not valid.

    In `model@Factory#instance` the instance comes last, so everything before the "@" is the model's name.
    """
    name, _, place = llm_id.rpartition("@")
    factory, _, instance = place.rpartition("#")
    if name and factory and instance and all(account.factory != place for account in accounts):
        return name, instance, factory
    parts = llm_id.rsplit("@", 2)
    if not all(parts):
        return None
    if len(parts) == 1:
        return llm_id, None, ""
    return (parts[0], None, parts[1]) if len(parts) == 2 else (parts[0], parts[1], parts[2])


def _listed_name(account: VendorAccount, name: str, known: Mapping[str, Vendor]) -> str:
    """Return the name that the account's list has for the model, with or without suffix, or the name unchanged."""
    vendor = known.get(account.factory, UNLISTED)
    if name in account.models:
        return name
    short = vendor.without_suffix(name)
    return next((listed for listed in account.models if vendor.without_suffix(listed) == short), name)


def _find_account(name: str, accounts: Sequence[VendorAccount], known: Mapping[str, Vendor]) -> VendorAccount:
    """Return the first active account that lists the model, or the first without a list whose vendor has the model."""
    active = [account for account in accounts if account.status == "active"]
    listed = {id(account): _listed_name(account, name, known) for account in active}
    listing = [account for account in active if listed[id(account)] in account.models]
    enabled = [account for account in listing if account.models[listed[id(account)]].status == "active"]
    is_open = [
        account
        for account in active
        if not account.models and known.get(account.factory, UNLISTED).context_of(name) is not None
    ]
    for account in (*enabled, *is_open, *listing):
        return account
    raise _model_error(
        f"Provider not found for model {name}. Write it as {name}@Factory, or add an account with it.", "", name
    )


def _find_instance(offered: Sequence[VendorAccount], instance: str | None, factory: str, name: str) -> VendorAccount:
    """Return the account with the instance name; without a name, `default` or the only active account."""
    for account in offered:
        if account.instance == (instance or "default"):
            return account
    active = [account for account in offered if account.status == "active"]
    if instance in (None, "default") and len(active) == 1:
        return active[0]
    there = ", ".join(account.instance for account in offered)
    message = (
        f"Instance {instance or 'default'} of provider {factory} not found for model {name}. "
        f"Use one of these: {there}; or add an account with this instance."
    )
    raise _model_error(message, factory, name)


# -- the spec of a model ---------------------------------------------------------------------------------------------


def _spec(llm_id: str, account: VendorAccount, name: str, vendor: Vendor, kind: str) -> ModelSpec:
    factory = account.factory
    sent = vendor.without_suffix(name)
    model = account.models.get(name)
    if model is None:
        if account.models:
            raise _model_error(
                f"Model {name} is not enabled for provider {factory}. Enable it or pick another.", factory, name
            )
        model = AccountModel(kinds=vendor.kinds_of(sent) or frozenset({kind}))
    _check_status(account, model, name, kind)
    key, payload = split_api_key(account.api_key)
    extra = {**account.extra, **payload}
    own_families(extra)  # raises ModelError here rather than in the middle of a run
    base_url = _base_url(account, vendor, name, extra)
    is_tools = next((flag for flag in (model.is_tools, extra.get("is_tools")) if flag is not None), vendor.is_tools)
    return ModelSpec(
        id=llm_id,
        name=sent,
        factory=factory,
        base_url=base_url,
        api_key=key,
        kinds=model.kinds,
        context_tokens=model.context_tokens or _context_of(factory, vendor, base_url, sent),
        is_tools=bool(is_tools),
        extra=extra,
        rate_limit=_rate_limit_key(account, model, name),
        account=_title_of(account),
    )


def spec_without_account(llm_id: str) -> ModelSpec | None:
    """Return a model of a vendor that Easel knows, as an account without settings has it; None for other vendors."""
    parts = _split_id(llm_id, ())
    vendor = vendors().get(parts[2]) if parts is not None else None
    if parts is None or vendor is None:
        return None
    name = vendor.without_suffix(parts[0])
    context = _context_of(parts[2], vendor, vendor.base_url, name)
    return ModelSpec(llm_id, name, parts[2], vendor.base_url, context_tokens=context)


def _context_of(factory: str, vendor: Vendor, base_url: str | None, model: str) -> int:
    """Return the context of a model in tokens: of the public list, else of the vendor's table, else the smallest."""
    return price_list.find_context(factory, base_url, model) or vendor.context_of(model) or FALLBACK_CONTEXT


def _rate_limit_key(account: VendorAccount, model: AccountModel, name: str) -> RateLimitKey | None:
    """Return the rate limits of a model: its own, or those that all models of its account share."""
    place = f"{account.owner or 'all'}/{account.factory}/{account.instance}"
    title = _title_of(account)
    if model.limits_by_name:
        return RateLimitKey(RateLimits.from_fields(model.limits_by_name), f"{place}/{name}", f"{name} of {title}")
    return RateLimitKey(account.rate_limits, place, title) if account.rate_limits.limits_by_name else None


def _title_of(account: VendorAccount) -> str:
    """Return the name of an account for people."""
    return f"{account.factory} ({account.instance})"


def _check_status(account: VendorAccount, model: AccountModel, name: str, kind: str) -> None:
    factory = account.factory
    if account.status != "active":
        raise _model_error(
            f"Provider {factory} is disabled (model {name}). Enable its account or pick another.", factory, name
        )
    able = {kind, "vision"} if kind == "chat" else {kind}
    if model.status == "unsupported" or not able & model.kinds:
        raise _model_error(f"Model {name} of provider {factory} cannot be used as {kind}. Pick another.", factory, name)
    if model.status != "active":
        raise _model_error(f"Model {name} of provider {factory} is disabled. Enable it or pick another.", factory, name)


def _base_url(account: VendorAccount, vendor: Vendor, name: str, extra: Mapping[str, Any]) -> str | None:
    dialect = dialect_of(account.factory, vendor, extra, account.base_url)
    if not account.base_url:
        if usual := default_base_url(dialect, vendor, extra):
            return usual
        message = f"Provider {account.factory} needs a base URL for model {name}. Set `base_url` of its account."
        raise _model_error(message, account.factory, name)
    parts = urlsplit(account.base_url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        message = f"The base URL of provider {account.factory} (model {name}) must be http(s)://host/..."
        raise _model_error(message, account.factory, name)
    return normalize_base_url(dialect, account.base_url)


def _scripted_wire(spec: ModelSpec) -> ScriptedWire:
    rules = spec.extra.get("rules")
    if not rules:
        message = (
            f"The scripted model has no rules. Name a JSON or TOML file as `rules` in the account of {BUILTIN_FACTORY}."
        )
        raise _spec_error(message, spec)
    return ScriptedWire(load_script(Path(str(rules))), spec.id)


def _model_error(message: str, provider: str, model: str) -> ModelError:
    return ModelError(message, kind="MODEL_ERROR", provider=provider, model=model)


def _spec_error(message: str, spec: ModelSpec) -> ModelError:
    return _model_error(message, spec.factory, spec.name)
