"""Settings: defaults, parsing, refusals and secrets."""

import os
import stat
from datetime import timedelta
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

import settings
from settings import InvalidSettings, Settings


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("EASEL_", "COMPONENT_", "LLM_", "CELERY_", "TOOL_", "QUERIT_", "KEENABLE_")) or name in (
            "DATABASE_URL",
            "REDIS_URL",
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    settings.load.cache_clear()


def test_every_setting_has_a_default(tmp_path: Path) -> None:
    loaded = settings.load()

    assert loaded.home == tmp_path / ".easel"
    assert loaded.files_dir == tmp_path / ".easel" / "files"
    assert (loaded.database_url, loaded.redis_url, loaded.broker_url) == (None, None, None)
    assert (loaded.lease, loaded.renew_every) == (timedelta(seconds=10), timedelta(seconds=3))


def test_settings_are_read_once_per_process_and_cannot_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    first = settings.load()
    monkeypatch.setenv("EASEL_API_PORT", "9000")

    assert settings.load() is first
    with pytest.raises(ValueError, match="frozen"):
        first.api_port = 9000


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EASEL_HOME", "DATABASE_URL", "EASEL_SECRET_KEY", "EASEL_LEASE"):
        monkeypatch.setenv(name, "")

    assert settings.load() == Settings()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_any_spelling_of_a_database_url_leads_to_the_same_driver(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setenv("DATABASE_URL", f"{scheme}://u:p@h:1/d?sslmode=require")

    assert settings.load().database_url == "postgresql+psycopg://u:p@h:1/d?sslmode=require"


def test_variable_with_the_easel_prefix_overrides_the_shared_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://shared")
    monkeypatch.setenv("EASEL_REDIS_URL", "redis://ours")

    assert settings.load().redis_url == "redis://ours"


def test_broker_is_redis_unless_it_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://here")
    same = Settings()
    monkeypatch.setenv("CELERY_BROKER_URL", "amqp://there")
    other = Settings()

    assert (same.broker_url, other.broker_url) == ("redis://here", "amqp://there")


def test_embedded_servers_replace_only_missing_urls() -> None:
    named = Settings(database_url="postgresql://mine/d").with_servers(
        "postgresql+psycopg://embedded", "redis://embedded"
    )
    brokered = Settings(broker_url="amqp://there").with_servers("postgresql+psycopg://embedded", "redis://embedded")

    assert named.database_url == "postgresql+psycopg://mine/d"
    assert (named.redis_url, named.broker_url) == ("redis://embedded", "redis://embedded")
    assert (brokered.redis_url, brokered.broker_url) == ("redis://embedded", "amqp://there")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("20", timedelta(seconds=20)),
        ("7.5", timedelta(seconds=7.5)),
        ("9000ms", timedelta(seconds=9)),
        ("30 s", timedelta(seconds=30)),
        ("2m", timedelta(minutes=2)),
        ("1h", timedelta(hours=1)),
        ("1.5d", timedelta(hours=36)),
    ],
)
def test_a_duration_is_seconds_or_names_its_unit(
    monkeypatch: pytest.MonkeyPatch, written: str, expected: timedelta
) -> None:
    monkeypatch.setenv("EASEL_FORM_EXPIRY", written)

    assert settings.load().form_expiry == expected


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"EASEL_LEASE": "6", "EASEL_RENEW_EVERY": "3"}, "a lease must outlive two renewals"),
        ({"EASEL_CANCEL_POLL": "10"}, "within a lease"),
        ({"EASEL_LEASE": "601"}, "make EASEL_LEASE 10 minutes or less"),
        ({"EASEL_UNRESPONSIVE_AFTER": "10"}, "a probe may be lost"),
        ({"EASEL_LEASE": "soon"}, "EASEL_LEASE"),
        ({"EASEL_SHUTDOWN_GRACE": "0"}, "EASEL_SHUTDOWN_GRACE"),
        ({"EASEL_MAX_RUNNING": "0"}, "EASEL_MAX_RUNNING"),
        ({"EASEL_WORKER_POOL": "1"}, "EASEL_WORKER_POOL"),
        ({"EASEL_LOG_FORMAT": "xml"}, "EASEL_LOG_FORMAT"),
        ({"DATABASE_URL": "mysql://h/d"}, "DATABASE_URL"),
        ({"REDIS_URL": "localhost:6379"}, "REDIS_URL"),
        ({"EASEL_SECRET_KEY": "too short"}, "EASEL_SECRET_KEY"),
        ({"EASEL_FLOWER_URL": "http://user:password@flower:5555"}, "EASEL_FLOWER_URL"),
        ({"EASEL_FLOWER_URL": "flower:5555"}, "EASEL_FLOWER_URL"),
        ({"EASEL_EMBED_ORIGINS": "https://example.com/path"}, "EASEL_EMBED_ORIGINS.*is not an origin"),
        ({"EASEL_EMBED_ORIGINS": "https://*.example.com"}, "EASEL_EMBED_ORIGINS.*is not an origin"),
        ({"EASEL_EMBED_ORIGINS": "https://a.example; script-src *"}, "EASEL_EMBED_ORIGINS.*is not an origin"),
        ({"EASEL_EMBED_ORIGINS": "*, https://a.example"}, "EASEL_EMBED_ORIGINS.*write it alone"),
    ],
)
def test_invalid_setting_is_refused_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], complaint: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(InvalidSettings, match=complaint) as refused:
        settings.load()

    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", ()),
        ("https://a.example", ("https://a.example",)),
        ("https://a.example, http://localhost:3000 ,", ("https://a.example", "http://localhost:3000")),
        ("*", ("*",)),
    ],
)
def test_origins_that_may_embed_the_chat_are_separated_by_commas(
    monkeypatch: pytest.MonkeyPatch, written: str, expected: tuple[str, ...]
) -> None:
    monkeypatch.setenv("EASEL_EMBED_ORIGINS", written)

    assert settings.load().embedders == expected


@pytest.mark.parametrize(("old", "new"), settings.RENAMED.items())
def test_former_name_of_a_setting_is_read_and_listed(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    field = new.removeprefix("EASEL_").lower()
    value = {"inline_advance": "false", "max_stream_chars": "5", "unresponsive_after": "70s"}.get(field, "7s")
    monkeypatch.setenv(new, value)
    expected = getattr(Settings(), field)
    monkeypatch.delenv(new)
    monkeypatch.setenv(old, value)

    assert getattr(settings.load(), field) == expected != Settings.model_fields[field].default
    assert settings.renamed_variables() == {old: new}


def test_former_and_present_name_with_different_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EASEL_GRACE", "7s")
    monkeypatch.setenv("EASEL_SHUTDOWN_GRACE", "8s")

    with pytest.raises(InvalidSettings, match="EASEL_GRACE: this is the former name of EASEL_SHUTDOWN_GRACE"):
        settings.load()


def test_no_secret_shows_in_a_repr_or_in_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hunter2@h/d")
    monkeypatch.setenv("REDIS_URL", "redis://:hunter2@h")
    monkeypatch.setenv("CELERY_BROKER_URL", "amqp://u:hunter2@h")
    monkeypatch.setenv("EASEL_SECRET_KEY", "hunter2 and some more")
    monkeypatch.setenv("QUERIT_API_KEY", "hunter2")
    shown = repr(Settings()) + str(Settings())
    monkeypatch.setenv("DATABASE_URL", "mysql://u:hunter2@h/d")
    monkeypatch.setenv("REDIS_URL", "hunter2")
    with pytest.raises(InvalidSettings) as refused:
        settings.load()

    assert "hunter2" not in shown + str(refused.value) + repr(refused.value.__context__)


# -- vendors of tools ------------------------------------------------------------------------------------------------


def test_base_url_of_a_vendor_and_of_one_of_its_hosts_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_QWEATHER_BASE_URL", "http://mirror")
    monkeypatch.setenv("TOOL_QWEATHER_BASE_URL_GEOAPI_QWEATHER_COM", "http://geo")
    monkeypatch.setenv("TOOL_BGPT_BASE_URL", "")

    assert Settings().tool_urls == {"QWEATHER": "http://mirror", "QWEATHER_GEOAPI_QWEATHER_COM": "http://geo"}


def test_vendor_variables_are_read_under_their_ragflow_names(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Settings()
    monkeypatch.setenv("KEENABLE_API_URL", "https://keen.internal")
    monkeypatch.setenv("QUERIT_API_KEY", "querit-key")

    assert (nothing.tool_urls, nothing.vendor_keys) == ({}, {})
    assert Settings().tool_urls == {"KEENABLE": "https://keen.internal"}
    assert Settings().vendor_keys == {"QUERIT": "querit-key"}


# -- time limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("component", "seconds"),
    [
        ("ExeSQL", 3), ("Switch", 3), ("TavilySearch", 12), ("Retrieval", 12), ("BGPT", 30), ("Email", 60),
        ("QueritContents", 70), ("LLM", 600), ("Agent", 1200), ("Begin", inf), ("LoopItem", inf), ("Unheard", 600),
    ],
)  # fmt: skip
def test_components_have_the_time_limits_of_the_table(component: str, seconds: float) -> None:
    assert Settings().time_limit(component) == seconds


def test_time_limit_of_one_component_overrides_the_table_and_one_for_all_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COMPONENT_EXEC_TIMEOUT", "99")
    monkeypatch.setenv("COMPONENT_EXEC_TIMEOUT_EXESQL", "7")
    loaded = Settings()

    assert [loaded.time_limit(name) for name in ("ExeSQL", "TavilySearch", "Unheard")] == [7, 12, 99]


@given(st.one_of(st.integers(max_value=0).map(str), st.sampled_from(["", " ", "ten", "1.5", "3s", "-", "0x10", "inf"])))
def test_time_limit_that_is_not_a_positive_integer_is_ignored(written: str) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("COMPONENT_EXEC_TIMEOUT", written)
        monkeypatch.setenv("COMPONENT_EXEC_TIMEOUT_EXESQL", written)
        loaded = Settings()

    assert [loaded.time_limit("ExeSQL"), loaded.time_limit("Unheard")] == [3, 600]


def test_limits_of_model_calls_are_read_under_their_ragflow_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_TIMEOUT_SECONDS", "30")
    monkeypatch.setenv("LLM_MAX_RETRIES", "0")
    monkeypatch.setenv("LLM_BASE_DELAY", "0.25")
    loaded = settings.load()

    assert loaded.llm_timeout == timedelta(seconds=30)
    assert loaded.llm_max_retries == 0
    assert loaded.llm_base_delay == timedelta(milliseconds=250)


# -- the encryption secret -------------------------------------------------------------------------------------------


def test_secret_is_created_once_in_a_private_file(tmp_path: Path) -> None:
    first = Settings(home=tmp_path / "new").encryption_secret()
    second = Settings(home=tmp_path / "new").encryption_secret()

    (file,) = (tmp_path / "new").iterdir()
    assert first == second
    assert len(first) >= 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_configured_secret_is_used_and_creates_no_file(tmp_path: Path) -> None:
    loaded = Settings(home=tmp_path / "new", secret_key=SecretStr("sixteen letters!"))

    assert loaded.encryption_secret() == "sixteen letters!"
    assert not (tmp_path / "new").exists()


def test_two_processes_that_create_a_secret_use_the_first_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def create_in_another_process(_size: int) -> str:
        (tmp_path / "secret.key").write_text("made by the other process")
        return "made by this process"

    monkeypatch.setattr(settings.secrets, "token_urlsafe", create_in_another_process)

    assert Settings(home=tmp_path).encryption_secret() == "made by the other process"


@pytest.mark.parametrize(
    ("variables", "is_in_files"),
    [
        ({}, False),
        ({"EASEL_FILES_DIR": "/mnt/files"}, True),
        ({"EASEL_FILES_URL": "s3://easel/prod"}, True),
        ({"EASEL_FILES_DIR": "/mnt/files", "EASEL_LARGE_VALUES": "rows"}, False),
        ({"EASEL_LARGE_VALUES": "files"}, True),
    ],
)
def test_large_values_go_to_files_if_all_processes_share_them(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], is_in_files: bool
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DATABASE_URL", "postgresql://somewhere/easel")

    assert settings.load().values_in_files is is_in_files
    assert settings.load().with_servers("postgresql://ours", "redis://ours").values_in_files is is_in_files


def test_embedded_database_stores_large_values_in_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert settings.load().with_servers("postgresql://ours", "redis://ours").values_in_files

    settings.load.cache_clear()
    monkeypatch.setenv("EASEL_LARGE_VALUES", "rows")
    assert not settings.load().with_servers("postgresql://ours", "redis://ours").values_in_files


@pytest.mark.parametrize("url", ["easel/prod", "http://easel", "s3://", "s3://easel?versions"])
def test_invalid_bucket_url_is_refused(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("EASEL_FILES_URL", url)

    with pytest.raises(settings.InvalidSettings, match="EASEL_FILES_URL"):
        settings.load()


@pytest.mark.parametrize("name", ["REDIS_URL", "CELERY_BROKER_URL"])
def test_ambiguous_tls_verification_of_a_redis_url_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "rediss://:secret@h:1/0?ssl_cert_reqs=CERT_NONE")

    with pytest.raises(InvalidSettings, match=r"ssl_cert_reqs must be required \(the default\) or none") as refused:
        settings.load()

    assert "secret" not in str(refused.value)


def test_refusal_of_a_short_secret_key_counts_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EASEL_SECRET_KEY", "short")

    with pytest.raises(InvalidSettings, match="EASEL_SECRET_KEY: use 16 characters or more, not 5") as refused:
        settings.load()

    assert "short" not in str(refused.value)
