"""Tables of text with pipes."""

from components.tools.framework.pipe_table import pipe_table


def test_columns_of_names_and_mixed_values_are_left_aligned():
    assert pipe_table(["", "0"], [["symbol", "ACME"], ["marketCap", 12]]) == (
        "|           | 0    |\n|:----------|:-----|\n| symbol    | ACME |\n| marketCap | 12   |"
    )


def test_numbers_are_right_aligned_at_their_decimal_points():
    table = pipe_table(["", "price", "n"], [[0, 1.5, 10], [1, 1234567.0, 2], [2, None, 3]])

    assert table == (
        "|    |         price |   n |\n"
        "|---:|--------------:|----:|\n"
        "|  0 |   1.5         |  10 |\n"
        "|  1 |   1.23457e+06 |   2 |\n"
        "|  2 | nan           |   3 |"
    )


def test_a_cell_is_one_line_and_a_missing_one_is_blank():
    assert pipe_table(["a", "b"], [["x\ny", None], ["z"]]) == (
        "| a   | b   |\n|:----|:----|\n| x y |     |\n| z   |     |"
    )


def test_a_table_without_rows_has_its_head():
    assert pipe_table(["name"], []) == "| name   |\n|:-------|"


def test_pipes_in_cells_and_names_are_escaped():
    assert pipe_table(["a|b"], [["x|y"]]) == "| a\\|b   |\n|:-------|\n| x\\|y   |"
