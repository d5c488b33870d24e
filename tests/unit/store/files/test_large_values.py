"""Values that are too large for a row are stored in files and read back unchanged."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import ValueGone
from store.files.blobs import Blobs, LocalBlobs
from store.files.large_values import LargeValues
from store.primitives.ids import new_id
from store.primitives.json_codec import encode
from store.primitives.weeks import Week

TENANT, RUN = new_id(), new_id()
SMALL = 64  # bytes that stay in a row, in these tests

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner, max_size=8),
    max_leaves=30,
)


def large_values_in(folder: Path, **more: Any) -> LargeValues:
    return LargeValues(LocalBlobs(folder), stores_new=True, **{"min_bytes": SMALL, **more})


def row_of(outputs: dict[str, Any], inputs: dict[str, Any] | None = None, run_id: UUID = RUN) -> dict[str, Any]:
    return {"run_id": run_id, "outputs": outputs, "inputs": inputs or {}, "names": list(outputs)}


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@given(outputs=st.dictionaries(st.text(max_size=5), json, max_size=4))
def test_outputs_are_read_as_written_and_only_small_values_are_in_the_row(
    outputs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
):
    large = large_values_in(tmp_path_factory.getbasetemp() / "values")

    row = large.values_row(TENANT, row_of(outputs))

    assert large.outputs("work", row["outputs"], row.get("large")) == outputs
    assert list(row["outputs"]) == list(outputs)
    assert all(len(encode(value).encode()) <= SMALL for value in row["outputs"].values())


@pytest.mark.parametrize(
    ("value", "is_in_a_file"),
    [
        ("x" * (SMALL - 2), False),
        ("x" * (SMALL - 1), True),
        ("\x01" * 10, False),
        ("\x01" * 11, True),
        ("☃" * 20, False),
        ("☃" * 21, True),
        ([0.1] * 15, False),
        ([0.1] * 16, True),
        (10 ** (SMALL + 1), False),
    ],
)
def test_encoded_size_decides_whether_a_value_goes_to_a_file(tmp_path: Path, value: Any, is_in_a_file: bool):
    row = large_values_in(tmp_path).values_row(TENANT, row_of({"value": value}))

    assert ("large" in row) is is_in_a_file
    assert len(files_in(tmp_path)) == is_in_a_file


def test_large_inputs_and_variables_are_in_files_and_equal_ones_are_stored_once(tmp_path: Path):
    large, text = large_values_in(tmp_path), "x" * 1000

    row = large.values_row(TENANT, row_of({"a": text, "b": 1}, {"a": text}))
    variable = large.variable_row(TENANT, {"run_id": RUN, "name": "env.text", "value": text})

    assert row["outputs"] == {"a": None, "b": 1}
    assert large.inputs("work", row["inputs"], row["large"]) == {"a": text}
    assert variable["value"] is None
    assert large.variable("env.text", None, variable["large"]) == text
    assert len(files_in(tmp_path)) == 1


def test_two_tenants_share_no_file(tmp_path: Path):
    large, other = large_values_in(tmp_path), new_id()

    mine = large.values_row(TENANT, row_of({"text": "x" * 1000}))
    theirs = large.values_row(other, row_of({"text": "x" * 1000}))

    assert mine["large"] != theirs["large"]
    assert [path.parent.parent.name for path in files_in(tmp_path)] == sorted([TENANT.hex, other.hex])


def test_file_is_compressed_and_in_the_folder_of_its_runs_week(tmp_path: Path):
    large_values_in(tmp_path).values_row(TENANT, row_of({"text": "x" * 100_000}))

    (file,) = files_in(tmp_path)
    assert file.parent.parent.parent == tmp_path / "values" / Week.of_run(RUN).name
    assert file.stat().st_size < 1000


def test_value_that_looks_like_a_file_reference_is_not_read_from_a_file(tmp_path: Path):
    large = large_values_in(tmp_path)
    secret = large.values_row(TENANT, row_of({"text": "x" * 1000}))["large"]["outputs"]["text"]

    row = large.values_row(new_id(), row_of({"text": None, "large": {"outputs": {"text": secret}}}))

    assert large.outputs("work", row["outputs"], row.get("large"))["text"] is None


def test_value_in_the_row_takes_precedence_over_its_file(tmp_path: Path):
    large = large_values_in(tmp_path)
    references = large.values_row(TENANT, row_of({"text": "x" * 1000}))["large"]

    assert large.outputs("form", {"text": "answered"}, references) == {"text": "answered"}


def test_process_without_file_storage_stores_large_values_in_rows(tmp_path: Path):
    row = row_of({"text": "x" * 1000})

    assert LargeValues().values_row(TENANT, row) is row
    assert LargeValues(LocalBlobs(tmp_path), stores_new=False, min_bytes=SMALL).values_row(TENANT, row) is row


def test_value_stays_in_its_row_if_the_file_storage_fails(tmp_path: Path):
    class Full(LocalBlobs):
        def store(self, data: bytes) -> bytes:
            raise OSError(28, "No space left on device")

        def part(self, name: str) -> Blobs:
            return self

    row = row_of({"text": "x" * 1000})

    assert LargeValues(Full(tmp_path), stores_new=True, min_bytes=SMALL).values_row(TENANT, row) == row


def test_error_of_a_missing_file_names_node_and_output_and_what_to_do(tmp_path: Path):
    large = large_values_in(tmp_path)
    row = large.values_row(TENANT, row_of({"text": "x" * 1000}))
    (file,) = files_in(tmp_path)
    file.unlink()

    with pytest.raises(
        ValueGone, match=r'Node "work": the value of "text" \(1,002 bytes\) is not .*restore it'
    ) as failed:
        large.outputs("work", row["outputs"], row["large"])

    assert str(file.relative_to(tmp_path)) in failed.value.message


def test_changed_file_is_refused(tmp_path: Path):
    large = large_values_in(tmp_path)
    row = large.values_row(TENANT, row_of({"text": "x" * 1000}))
    files_in(tmp_path)[0].write_bytes(b"something else")

    with pytest.raises(ValueGone, match="has been changed"):
        large.outputs("work", row["outputs"], row["large"])


def test_error_of_a_process_without_file_storage_names_the_settings(tmp_path: Path):
    row = large_values_in(tmp_path).values_row(TENANT, row_of({"text": "x" * 1000}))

    with pytest.raises(ValueGone, match="EASEL_FILES_DIR or EASEL_FILES_URL"):
        LargeValues().outputs("work", row["outputs"], row["large"])


def test_clearing_a_week_removes_its_files_only(tmp_path: Path):
    large, other = large_values_in(tmp_path), new_id()
    later = UUID(int=RUN.int + (14 * 86_400_000 << 80))
    large.values_row(TENANT, row_of({"text": "x" * 1000}))
    large.values_row(other, row_of({"text": "y" * 1000}))
    later_row = large.values_row(TENANT, row_of({"text": "z" * 1000}, run_id=later))
    gone, stays = large.weeks()

    assert large.tenants(gone) == sorted([TENANT.hex, other.hex])
    assert [large.clear(gone, tenant) for tenant in large.tenants(gone)] == [1, 1]

    assert large.weeks() == [stays]
    assert large.outputs("work", later_row["outputs"], later_row["large"]) == {"text": "z" * 1000}
