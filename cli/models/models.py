"""Model accounts: `easel models`."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from canvas.errors import InvalidRequest
from canvas.ids import TenantId
from cli.models import model_prices, model_test
from cli.models.model_test import ModelTestResult
from cli.models.tenant_models import guard_of, open_models, request_limits
from cli.shell import output
from cli.shell.connection import CommandConnection, find_tenant_id, open_connection
from cli.shell.exit_codes import Exit
from cli.shell.options import LOCAL_TENANT, AsJson, OfTenant
from knowledge.models import accounts_from_rows
from providers.http.client import HttpClient
from providers.models.billing.price_updates import update_once
from providers.models.billing.prices import read_prices
from providers.models.chat.catalogue import BUILTIN_FACTORY, vendors
from providers.models.types.chat import ModelSpec
from providers.models.vendors.accounts import KINDS, VendorAccount, accounts_from_toml
from providers.rate_limits import RateLimits
from store.primitives.encryption import EncryptionKey
from store.tenants import model_accounts
from store.tenants.model_accounts import AccountRow

models = typer.Typer(help="Model accounts: list, add, remove, test, prices.", no_args_is_help=True)

BUILTIN_ROWS = (
    {
        "model": "echo",
        "vendor": BUILTIN_FACTORY,
        "from": "built in",
        "status": "built-in model: answers with its input",
    },
    {"model": "scripted", "vendor": BUILTIN_FACTORY, "from": "built in", "status": "built-in model: replays rules"},
)
KEY_NOT_DECRYPTED = "its key cannot be decrypted with EASEL_SECRET_KEY"
Vendor = Annotated[str, typer.Argument(help="The vendor, as in model@VENDOR.", metavar="VENDOR")]
Instance = Annotated[str, typer.Option(help="Name of the account, if the vendor has several.", metavar="NAME")]


@models.command("list")
def list_models(tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False) -> None:
    """List the model accounts of a tenant and their models. Keys are never shown."""
    with open_connection() as connection:
        with connection.database.transaction() as tx:
            tenant_id = find_tenant_id(tx, tenant)
            rows = model_accounts.list_accounts(tx, tenant_id)
            encryption_key = EncryptionKey.from_secret(connection.servers.settings.encryption_secret())
            closed = set(model_accounts.list_unreadable(tx, tenant_id, encryption_key))
        file = connection.servers.settings.models_file
        shared = accounts_from_toml(file) if file else ()
    own = [
        _account_rows(it, "database", (it.factory, it.instance) in closed) for it in accounts_from_rows(rows, tenant_id)
    ]
    listed = [*own, *(_account_rows(it, str(file)) for it in shared)]
    columns = ("model", "vendor", "instance", "from", "status", "limits")
    output.print_table([row for rows in listed for row in rows] + [*BUILTIN_ROWS], columns, as_json=as_json)


@models.command()
def add(
    vendor: Vendor,
    model: Annotated[list[str] | None, typer.Option(help="A model to enable; by default all.", metavar="NAME")] = None,
    kind: Annotated[list[str] | None, typer.Option(help=f"Kind of these models: {', '.join(KINDS)}.")] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Address of a vendor that Easel does not know.", metavar="URL")
    ] = None,
    key_from: Annotated[str | None, typer.Option(help="Environment variable with the key.", metavar="NAME")] = None,
    rules: Annotated[
        str | None, typer.Option(help=f"Rules of the scripted model; only for {BUILTIN_FACTORY}.", metavar="FILE")
    ] = None,
    requests_per_minute: Annotated[int | None, typer.Option(help="Maximum requests per minute.", min=1)] = None,
    tokens_per_minute: Annotated[int | None, typer.Option(help="Maximum tokens per minute.", min=1)] = None,
    concurrency: Annotated[int | None, typer.Option(help="Maximum concurrent requests.", min=1)] = None,
    tools: Annotated[
        bool | None, typer.Option("--tools/--no-tools", help="Whether these models call tools. Default: the vendor's.")
    ] = None,
    instance: Instance = "default",
    tenant: OfTenant = LOCAL_TENANT,
) -> None:
    """Add or replace the account with this vendor and instance. The key is prompted for, or read from stdin."""
    if vendor not in vendors() and vendor != BUILTIN_FACTORY and not base_url:
        raise InvalidRequest(
            f"{vendor} is not a vendor that Easel knows. Add its --base-url, or use one of: {_known_vendors()}."
        )
    if unknown := set(kind or ()) - set(KINDS):
        raise InvalidRequest(f"Not a kind of model: {', '.join(sorted(unknown))}. Use one of: {', '.join(KINDS)}.")
    key = "" if vendor == BUILTIN_FACTORY else _read_key(vendor, key_from)
    rates = RateLimits(
        requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute, concurrency=concurrency
    )
    account = AccountRow(
        vendor,
        instance,
        base_url,
        key,
        {name: {"kinds": choose_kinds(vendor, name, kind or ()), "status": "active"} for name in model or ()},
        {
            **rates.limits_by_name,
            **({"rules": os.path.abspath(rules)} if rules else {}),
            **({"is_tools": tools} if tools is not None else {}),
        },
    )
    with open_connection() as connection, connection.database.transaction() as tx:
        encryption_key = EncryptionKey.from_secret(connection.servers.settings.encryption_secret())
        model_accounts.put_account(tx, find_tenant_id(tx, tenant), account, encryption_key)
    output.print_message(f"Account {vendor} ({instance}) is stored. Test it: easel models test MODEL@{vendor}")


@models.command()
def remove(vendor: Vendor, instance: Instance = "default", tenant: OfTenant = LOCAL_TENANT) -> None:
    """Delete an account and its key."""
    with open_connection() as connection, connection.database.transaction() as tx:
        model_accounts.remove(tx, find_tenant_id(tx, tenant), vendor, instance)
    output.print_message(f"Account {vendor} ({instance}) is deleted.")


@models.command("test")
def try_out(
    model: Annotated[str, typer.Argument(help="As canvases name it: model@Vendor.", metavar="MODEL")],
    kind: Annotated[str | None, typer.Option(help="Kind to test. Default: that of its account, else chat.")] = None,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Send a model one small request of its kind, such as a question or two texts to embed. Exit code 1 if it fails."""
    with open_connection() as connection:
        tenant_id = connection.tenant(tenant)
        spec, chosen = model_test.resolve_model(model, accounts_of(connection, tenant_id), kind)
        started = time.monotonic()
        answer = asyncio.run(_run_test(connection, tenant_id, spec, chosen))
        elapsed = time.monotonic() - started
    if as_json:
        row = {"model": model, "kind": chosen, "answer": answer.text, **answer.figures, "error": answer.error}
        output.print_json({**row, "seconds": round(elapsed, 3)})
    elif answer.error is None:
        output.print_line(answer.text)
        builtin = "; it is a built-in model and no real one" if spec.is_builtin else ""
        output.print_message(f"{model} answers in {output.format_seconds(elapsed)}{builtin}.", output.GREEN)
    if answer.error is not None:
        output.print_message(f"{model} does not answer: {answer.error}", output.RED)
        raise typer.Exit(Exit.FAILED)


@models.command("prices")
def show_prices(
    model: Annotated[str, typer.Argument(help="As canvases name it: model@Vendor.", metavar="MODEL")],
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Show the price of a model that counts, and where it comes from. Exit code 1 if it is not known."""
    with open_connection() as connection:
        spec = model_prices.find_spec(model, accounts_of(connection, connection.tenant(tenant)))
        settings = connection.servers.settings
        if settings.prices_url is not None:
            update_once(settings.prices_url, guard_of(settings))
        found = read_prices(settings.prices_file).find(spec)
    if as_json:
        output.print_json(model_prices.price_fields(spec, found))
    elif found is not None:
        output.print_table(model_prices.price_rows(found), ("for", "price", "per"), as_json=False, empty="It is free.")
        output.print_message(f"from: {found.source}; context: {spec.context_tokens:,} tokens")
    if found is None:
        output.print_message(
            f"The price of {model} is not known, so its calls are unpriced. "
            "Set it in EASEL_PRICES_FILE, or as extra.prices of its account.",
            output.RED,
        )
        raise typer.Exit(Exit.FAILED)


def accounts_of(connection: CommandConnection, tenant_id: TenantId) -> list[VendorAccount]:
    """Return a tenant's accounts with their keys, those shared by all tenants last."""
    settings = connection.servers.settings
    with connection.database.transaction() as tx:
        rows = model_accounts.list_accounts(tx, tenant_id, EncryptionKey.from_secret(settings.encryption_secret()))
    shared = accounts_from_toml(settings.models_file) if settings.models_file else []
    return [*accounts_from_rows(rows, tenant_id), *shared]


def choose_kinds(vendor: str, name: str, named: Sequence[str]) -> list[str]:
    """Return the kinds of a model: the named ones, else those that its vendor's table lists, else chat."""
    known = vendors()[vendor].kinds_of(name) if vendor in vendors() else None
    return sorted(named or known or ("chat",))


async def _run_test(connection: CommandConnection, tenant_id: TenantId, spec: ModelSpec, kind: str) -> ModelTestResult:
    settings = connection.servers.settings
    limits = request_limits(settings)
    http = HttpClient(guard_of(settings), user_agent=settings.http_user_agent, contact=settings.contact)
    try:
        async with open_models(connection) as models:
            return await model_test.make_test(models, tenant_id, spec, kind, limits, http).run()
    finally:
        await http.aclose()


def _account_rows(account: VendorAccount, source: str, is_closed: bool = False) -> Sequence[dict[str, Any]]:
    """Return a row for each model of an account, or one row for all models of the vendor if the account names none.

    `is_closed`: the key cannot be decrypted, so every call to its models fails.
    """
    of_account = KEY_NOT_DECRYPTED if is_closed else account.status
    place = {"vendor": account.factory, "instance": account.instance, "from": source}
    if not account.models:
        return [{"model": "(all of the vendor)", **place, "status": of_account, "limits": _limits(account.rate_limits)}]
    return [
        {
            "model": name,
            **place,
            "status": model.status if of_account == "active" else of_account,
            "limits": _limits(model) if model.limits_by_name else _limits(account.rate_limits),
        }
        for name, model in account.models.items()
    ]


def _limits(rates: RateLimits) -> str:
    """Return rate limits for people."""
    words = {
        "requests_per_minute": "requests a minute",
        "tokens_per_minute": "tokens a minute",
        "concurrency": "at once",
    }
    return ", ".join(f"{limit:,} {words[name]}" for name, limit in rates.limits_by_name.items())


def _read_key(vendor: str, variable: str | None) -> str:
    """Return the key from a variable, a prompt or stdin; not from an argument, which other users of the machine see."""
    if variable is not None:
        if not os.environ.get(variable):
            raise InvalidRequest(f"The environment variable {variable} is not set.")
        return os.environ[variable]
    if sys.stdin.isatty():
        return str(typer.prompt(f"Key for {vendor} (empty for none)", hide_input=True, default="", show_default=False))
    return sys.stdin.readline().strip()


def _known_vendors() -> str:
    return ", ".join(sorted(vendors()))
