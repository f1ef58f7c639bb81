"""A tree survives being written and read."""

from hypothesis import given

from schedlang.source import Source
from schedlang.syntax import format_file, parse, parse_value
from schedlang.syntax.unparse import expression
from tests.trees import expressions, files


@given(files)
def test_what_is_written_reads_as_the_same_tree(file):
    text = format_file(file)
    again, diagnostics = parse(Source("<made>", text))
    assert diagnostics == []
    assert again == file
    assert format_file(again) == text


@given(expressions)
def test_what_a_value_is_written_as_reads_as_the_same_value(value):
    assert parse_value(expression(value), "-p k") == value
