"""`easel doctor`: variables without effect, PostgreSQL's lock table, and the isolation of programs."""

import pytest
from pydantic import SecretStr

from cli.server import checks
from cli.server.checks import Level
from components import registry
from components.tools.framework.retired import RETIRED
from providers.sandboxes.bubblewrap import Bubblewrap
from providers.sandboxes.local import Isolation
from settings import TIME_LIMITS, Settings
from store.monitoring.server_info import LockUse


def test_doctor_warns_when_statements_over_all_weeks_may_take_half_of_the_lock_table():
    few, many = LockUse(6400, 9, 63, 117), LockUse(6400, 109, 763, 1417)

    fine, scarce = (checks.locks(use, 100, Settings(api_pool=8)) for use in (few, many))

    assert (fine.level, scarce.level) == (Level.OK, Level.WARN)
    assert "with 109 partitions of each table" in scarce.found
    assert scarce.advice.startswith("Set max_locks_per_transaction to 192 and restart PostgreSQL")


def findings_of(**environment: str) -> list[tuple[str, str]]:
    """Return (about, found) of each finding about these variables."""
    return [
        (finding.about, finding.found)
        for finding in checks.find_unread_variables(environment, Settings(sandbox="none"))
    ]


def test_doctor_reports_that_a_time_limit_for_all_components_has_no_effect():
    ((about, found),) = findings_of(COMPONENT_EXEC_TIMEOUT="77", COMPONENT_EXEC_TIMEOUT_EXESQL="9")

    assert about == "time limits"
    assert "COMPONENT_EXEC_TIMEOUT is set and has no effect" in found


def test_every_component_has_a_time_limit_of_its_own():
    assert {component.name for component in registry.COMPONENTS.values()} - {tool.name for tool in RETIRED} <= set(
        TIME_LIMITS
    )


def test_time_limit_for_all_components_is_effective_with_plugins():
    assert (
        list(checks.find_unread_variables({"COMPONENT_EXEC_TIMEOUT": "77"}, Settings(sandbox="none", plugins="*")))
        == []
    )


def test_doctor_reports_a_time_limit_of_an_unknown_component():
    assert findings_of(COMPONENT_EXEC_TIMEOUT_EXCESQL="9") == [("time limits", "no component has the name EXCESQL")]


def test_doctor_reports_a_limit_of_model_calls_that_has_no_effect():
    assert findings_of(MAX_CONCURRENT_CHATS="10") == [("model calls", "MAX_CONCURRENT_CHATS is set and has no effect")]


def test_doctor_reports_variables_of_ragflows_sandbox_but_not_of_ssh():
    ((about, found),) = findings_of(SANDBOX_PROVIDER_TYPE="ssh", SSH_HOST="box", SSH_AUTH_SOCK="/x", E2B_API_KEY="k")

    assert about == "sandbox"
    assert found == "set and without effect: E2B_API_KEY, SANDBOX_PROVIDER_TYPE, SSH_HOST; CodeExec has no sandbox"


def test_doctor_reports_no_variables_that_have_an_effect():
    assert findings_of(SSH_CONNECTION="1", LOCAL_ID="2", COMPONENT_EXEC_TIMEOUT_EXESQL="9", PATH="/bin") == []


WORKING, REFUSED = Bubblewrap("/usr/bin/bwrap", "0.8.0", ""), Bubblewrap("/usr/bin/bwrap", "0.6.1", "Unknown option")
NOTHING = "This machine does not allow the namespaces."


@pytest.mark.parametrize(
    ("isolation", "must_isolate", "level", "found"),
    [
        (Isolation(WORKING, ""), True, Level.OK, "bubblewrap 0.8.0 isolates programs"),
        (Isolation(WORKING, NOTHING), True, Level.OK, "bubblewrap 0.8.0 isolates programs"),
        (Isolation(None, ""), True, Level.OK, "Easel itself isolates programs; bubblewrap is not installed"),
        (
            Isolation(REFUSED, ""),
            True,
            Level.OK,
            "Easel itself isolates programs; bubblewrap 0.6.1 does not work here (Unknown option)",
        ),
        (
            Isolation(None, NOTHING),
            False,
            Level.WARN,
            "programs have limits, but are not isolated from the network and the worker's files: "
            f"bubblewrap is not installed; {NOTHING}",
        ),
        (
            Isolation(REFUSED, NOTHING),
            True,
            Level.FAIL,
            "programs are refused, because nothing isolates them: "
            f"bubblewrap 0.6.1 does not work here (Unknown option); {NOTHING}",
        ),
    ],
)
def test_doctor_says_what_isolates_programs(isolation: Isolation, must_isolate: bool, level: Level, found: str):
    result = checks.isolation(isolation, must_isolate=must_isolate)

    assert (result.level, result.found) == (level, found)
    assert bool(result.advice) is (isolation.bubblewrap is not WORKING)


def test_doctor_does_not_try_the_local_sandbox_of_a_deployment_that_uses_another():
    assert list(checks.local_sandbox(Settings(sandbox="self_managed"))) == []


def test_doctor_reports_invalid_settings_of_the_local_sandbox():
    (result,) = checks.local_sandbox(Settings(sandbox="local", sandbox_config=SecretStr('{"must_isolated": true}')))

    assert result.level is Level.FAIL
    assert "must_isolated" in result.found
