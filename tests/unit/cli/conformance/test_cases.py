"""Loading a folder of recorded cases."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.conformance.cases import Case, MalformedCase, load_folder, select

NODE = {"obj": {"component_name": "LLM", "params": {"llm_id": "", "tools": [{"component_name": "Agent"}]}}}


def document() -> dict[str, Any]:
    begin = {"obj": {"component_name": "Begin", "params": {"at": "__HTTP_BASE__/x"}}}
    return {"components": {"begin": begin, "LLM:A": NODE}, "path": []}


def case_file(**changes: Any) -> dict[str, Any]:
    run = {"events": [], "outputs": {}, "answer": "", "globals": {}, "history": []}
    case = {"name": "one", "match": "sequence", "dsl": document(), "runs": [{}], "expect": {"runs": [run]}}
    return {key: value for key, value in {**case, **changes}.items() if value is not None}


def load_one_case(folder: Path, **changes: Any) -> Case:
    (folder / "cases").mkdir(exist_ok=True)
    (folder / "cases" / "one.json").write_text(json.dumps(case_file(**changes)))
    return load_folder(folder)[0]


def test_first_run_starts_with_a_reset_and_later_runs_continue(tmp_path: Path):
    run = case_file()["expect"]["runs"][0]

    case = load_one_case(tmp_path, runs=[{}, {}, {"start": "load"}], expect={"runs": [run, run, run]})

    assert [case.start_of(index) for index in range(3)] == ["reset", "continue", "load"]
    assert (case.runs[0].query, case.runs[0].inputs, case.runs[0].files) == ("", {}, [])


def test_document_may_be_in_a_separate_file_with_or_without_a_wrapper(tmp_path: Path):
    (tmp_path / "plain.json").write_text(json.dumps(document()))
    (tmp_path / "wrapped.json").write_text(json.dumps({"id": 1, "dsl": document()}))

    assert load_one_case(tmp_path, dsl=None, dsl_file="plain.json").document == document()
    assert load_one_case(tmp_path, dsl=None, dsl_file="wrapped.json").document == document()


def test_a_document_outside_of_the_folder_is_not_read(tmp_path: Path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.json").write_text("{}")

    with pytest.raises(MalformedCase, match="outside of the folder"):
        load_one_case(inside, dsl=None, dsl_file="../secret.json")


def test_empty_model_ids_are_filled_and_parameters_set(tmp_path: Path):
    tools = [{"component_name": "Agent", "params": {"llm_id": ""}}, {"params": {"llm_id": "kept"}}]

    case = load_one_case(tmp_path, dsl_fill_llm_id="test-model", dsl_set={"LLM:A": {"tools": tools}})
    filled = load_one_case(tmp_path, dsl_fill_llm_id="test-model")

    assert case.document["components"]["LLM:A"]["obj"]["params"] == {"llm_id": "test-model", "tools": tools}
    assert filled.document["components"]["LLM:A"]["obj"]["params"]["llm_id"] == "test-model"


def test_nested_tools_get_the_model_id_too(tmp_path: Path):
    dsl = document()
    dsl["components"]["LLM:A"] = {"obj": {"component_name": "Agent", "params": {"tools": [{"params": {"llm_id": ""}}]}}}

    case = load_one_case(tmp_path, dsl=dsl, dsl_fill_llm_id="test-model")

    assert case.document["components"]["LLM:A"]["obj"]["params"]["tools"][0]["params"]["llm_id"] == "test-model"


def test_address_of_the_fixture_server_is_inserted_when_played(tmp_path: Path):
    case = load_one_case(tmp_path)

    played = case.document_at("http://h:1")

    assert played["components"]["begin"]["obj"]["params"]["at"] == "http://h:1/x"
    assert case.document["components"]["begin"]["obj"]["params"]["at"] == "__HTTP_BASE__/x"


def test_case_lists_the_components_that_it_needs(tmp_path: Path):
    assert load_one_case(tmp_path).component_names == {"Begin", "LLM", "Agent"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"match": "roughly"}, "match: Input should be"),
        ({"runs": []}, "runs: List should have at least 1 item"),
        ({"runs": [{"start": "again"}]}, r"runs\.0\.start: "),
        ({"expect": {"runs": []}}, "expect.runs: 0 recorded, 1 to play"),
        ({"dsl": None}, "needs `dsl` or `dsl_file`"),
        ({"dsl": None, "dsl_file": "missing.json"}, "missing.json: cannot be read as JSON"),
        ({"dsl_set": {"LLM:Z": {}}}, "dsl_set: the document has no component LLM:Z"),
    ],
)
def test_malformed_case_is_refused_with_the_field(tmp_path: Path, changes: dict[str, Any], message: str):
    with pytest.raises(MalformedCase, match=message):
        load_one_case(tmp_path, **changes)


def test_a_folder_without_cases_is_refused(tmp_path: Path):
    with pytest.raises(MalformedCase, match="not a conformance folder"):
        load_folder(tmp_path)


def test_cases_are_selected_by_match_class_name_and_tag(tmp_path: Path):
    case = load_one_case(tmp_path, name="join_two", tags=["join", "llm"])

    for match in (None, "sequence", "join_*", "two"):
        assert select([case], match) == [case]
    for match in ("partial_order", "fan_*", "three"):
        assert select([case], match) == []
    assert select([case], tags=["loop", "llm"]) == [case]
    assert select([case], tags=["loop"]) == []
