"""A worker as this deployment's settings want it: for worker processes and for the engine on one machine."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from components import plugins
from providers.databases.databases import place_of
from providers.http.address_policy import Guard
from providers.interfaces import Services
from providers.models.billing.cost_estimates import CostModel
from providers.models.billing.prices import Prices, prices_from
from providers.models.chat.catalogue import Limits
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.chat.scripted import Script
from providers.models.transport.connect import ModelAddressPolicy
from providers.models.vendors.accounts import accounts_from_toml
from scheduler.coordinator.coordinator import Coordinator
from settings import Settings
from store.primitives.encryption import EncryptionKey
from worker.context.output_limits import OutputLimits
from worker.fastpath.switches import fast_path_of
from worker.runtime import Worker, WorkerConfig
from worker.services.factory import ServiceConfig


def build_worker(
    settings: Settings,
    coordinator: Coordinator,
    redis_url: str,
    *,
    script: Callable[[UUID], Script | None] = lambda _: None,
    pace: RetryPolicy | None = None,
    read_file: Callable[[UUID, UUID, Mapping[str, Any], str], str] | None = None,
    of_tenant: Callable[[UUID, Services], Services] | None = None,
    guard: Guard | None = None,
) -> Worker:
    """A worker on these servers. What is given here stands for the outside world that the settings name."""
    plugins.load(settings.allowed_plugins)
    return Worker(
        coordinator,
        redis_url=redis_url,
        figures=WorkerConfig(
            lease=settings.lease,
            renew_every=settings.renew_every,
            cancel_poll=settings.cancel_poll,
            grace=settings.shutdown_grace,
            ride_along=settings.inline_advance,
            fast_path=fast_path_of(settings),
            allowance=OutputLimits(settings.max_output, settings.max_stream_chars, settings.max_depth),
        ),
        time_limit=settings.time_limit,
        limits=Limits(request_timeout=settings.llm_timeout, hosts=_model_hosts(settings, guard)),
        shared_accounts=accounts_from_toml(settings.models_file) if settings.models_file else (),
        sealing_key=EncryptionKey.of(settings.sealing_secret()),
        blobs=coordinator.database.large.blobs,
        reach=_reach(settings, coordinator.database.url, guard, of_tenant),
        script=script,
        pace=pace or RetryPolicy(retries=settings.llm_max_retries, base_delay=settings.llm_base_delay.total_seconds()),
        read_file=read_file,
        spending=CostModel(
            prices=prices_from(settings.prices_file) if settings.prices_file else Prices(),
            answer_tokens=settings.budget_answer_tokens,
        ),
    )


def _reach(
    settings: Settings,
    database_url: str,
    guard: Guard | None,
    of_tenant: Callable[[UUID, Services], Services] | None,
) -> ServiceConfig:
    key = settings.ragflow_api_key.get_secret_value() if settings.ragflow_api_key else ""
    return ServiceConfig(
        guard=guard or _guard(settings),
        timeout=settings.http_timeout.total_seconds(),
        user_agent=settings.http_user_agent,
        contact=settings.contact,
        base_urls=settings.tool_urls,
        vendor_keys=settings.vendor_keys,
        speech_model=settings.tts_model,
        speech_kept=settings.tts_cache_ttl,
        voices={"StepFun": settings.stepfun_tts_voice} if settings.stepfun_tts_voice else {},
        ragflow=(settings.ragflow_url, key) if settings.ragflow_url else None,
        knowledge_memory=settings.knowledge_memory,
        sandbox=settings.sandbox,
        sandbox_config=settings.sandbox_config.get_secret_value() if settings.sandbox_config else "",
        sandbox_url=settings.sandbox_url,
        sandbox_must_isolate=settings.sandbox_must_isolate,
        sandbox_allow_root=settings.sandbox_allow_root,
        trino_use_tls=settings.trino_use_tls,
        own_database=place_of(database_url),
        smtp_ports=settings.mail_ports,
        browser_executable=settings.browser_executable,
        browser_profiles=settings.home / "browser",
        browser_upload_bytes=settings.browser_upload_bytes,
        of_tenant=of_tenant or (lambda _, services: services),
    )


def _model_hosts(settings: Settings, guard: Guard | None) -> ModelAddressPolicy:
    return ModelAddressPolicy(guard or _guard(settings), settings.private_models, settings.model_proxies)


def _guard(settings: Settings) -> Guard:
    return Guard.parse(allow_any=settings.allow_any_host, allowed=settings.ssrf_allow or "")
