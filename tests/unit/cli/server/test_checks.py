"""`easel doctor`: variables without effect, and PostgreSQL's lock table."""

from cli.server import checks
from cli.server.checks import Level
from components import registry
from components.tools.framework.retired import RETIRED
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
