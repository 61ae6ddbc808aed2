"""Guards before the parser, and the place of a fault."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from promql.expressions import expressions

from posttrain_watchdog.promql.engine import Engine
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.grammar import Grammar
from posttrain_watchdog.promql.inspect import selectors
from posttrain_watchdog.promql.nodes import AGGREGATIONS, FUNCTIONS, Call, RangeSelector, Text, kind
from posttrain_watchdog.promql.syntax import MAX_LENGTH, MAX_NESTING, MAX_OPERATORS, parse
from posttrain_watchdog.promql.tokens import tokenize
from posttrain_watchdog.series.store import Store


def fault(expression: str) -> tuple[int | None, int | None, str]:
    with pytest.raises(PromQLError) as caught:
        parse(expression)
    return caught.value.line, caught.value.column, caught.value.message


@pytest.mark.parametrize(
    ("expression", "line", "column", "message"),
    [
        ("sum(x", 1, 6, "unexpected end of the expression, expected ',' or ')' after the argument"),
        ("foo bar", 1, 5, "unexpected 'bar', expected an operator or the end of the expression"),
        ("a +\n  * b", 2, 3, "unexpected '*', expected an expression"),
        ("x[5m", 1, 5, "unexpected end of the expression, expected ']' after the range"),
        ("x[m]", 1, 3, "unexpected 'm', expected a duration such as 5m"),
        ("x{a}", 1, 4, "unexpected '}', expected one of = != =~ !~"),
        ("x{a=5}", 1, 5, "unexpected '5', expected a quoted label value"),
        ("x{a='b'", 1, 8, "unexpected end of the expression, expected ',' or '}' after the label matcher"),
        ("sum by a (x)", 1, 8, "unexpected 'a', expected '(' with label names"),
        ("x > 'open", 1, 5, "unterminated quoted string"),
        ("x & y", 1, 3, "unexpected character '&'"),
        ("", 1, 1, "no expression found in input"),
        ("  # nothing", 1, 1, "no expression found in input"),
        ("up and\nnope(x[5m])", 2, 1, "unknown function with name 'nope'"),
        ("1 + sum(\n  rate(x))", 2, 3, "expected type matrix in call to function 'rate', got vector"),
        ("a + (b[5m] * 2)", 1, 12, "binary expression must contain only scalar and instant vector types"),
        ("1 + (2 > 3)", 1, 8, "comparisons between scalars must use BOOL modifier"),
        ("a or {b=~'('}", 1, 6, "illegal regex for ("),
        ("a + mad_over_time(x[5m])", 1, 5, "function mad_over_time is not supported: Prometheus 2.42 does not have it"),
        ("1 - limitk(2, x)", 1, 5, "aggregation limitk is not supported: Prometheus 2.42 does not have it"),
        ("a + fill(0) b", 1, 3, "fill modifiers of binary operators are not supported"),
        ("x @ -5", 1, 5, "@ with a time before 1970 is not supported"),
    ],
)
def test_a_fault_has_its_place(expression: str, line: int, column: int, message: str) -> None:
    assert fault(expression) == (line, column, message)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 10_000 + "1" + ")" * 10_000,
        "abs(" * 10_000 + "x" + ")" * 10_000,
        "1" + "+1" * 30_000,
        "x" + " or x" * 10_000,
        "-" * 30_000 + "1",
        "1" + "^1" * 30_000,
        "x[" * 10_000,
        "{" * 10_000,
        "x" * 100_000,
    ],
    ids=lambda text: text[:5],
)
def test_what_would_end_the_process_is_refused(expression: str) -> None:
    assert fault(expression)[2].split()[0] in ("more", "expression")


@pytest.mark.parametrize(
    "expression",
    [
        "(" * MAX_NESTING + "1" + ")" * MAX_NESTING,
        "abs(" * MAX_NESTING + "x" + ")" * MAX_NESTING,
        "1" + "+1" * MAX_OPERATORS,
        "x" + " or x" * MAX_OPERATORS,
        "(" * MAX_NESTING + "1" + ")" * MAX_NESTING + "+1" * MAX_OPERATORS,
        "x or " * 100 + "x" * (MAX_LENGTH - 600),
    ],
    ids=lambda text: text[:5],
)
def test_the_largest_that_is_let_through_is_parsed(expression: str) -> None:
    parse(expression)


def test_the_caps_are_not_reached_by_matchers() -> None:
    parse("x{" + ",".join(f'a{i}="b"' for i in range(1000)) + "}")


def test_a_range_below_a_second_is_kept() -> None:
    tree = parse("rate(x[500ms])")
    assert isinstance(tree, Call)
    assert isinstance(tree.args[0], RangeSelector)
    assert tree.args[0].range == 500


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (r"`\d+\.\d+`", r"\d+\.\d+"),
        ('`"quoted"`', '"quoted"'),
        ("`a\nb`", "a\nb"),
        ("`holt_winters(`", "holt_winters("),
        (r'"\\d+"', r"\d+"),
        (r"'\x41\u00e9\101\''", "AéA'"),
    ],
)
def test_a_string_means_what_go_means_by_it(literal: str, value: str) -> None:
    assert parse(literal) == Text(value)
    assert [m.value for _, matchers in selectors(f"x{{a={literal}}}") for m in matchers] == [value]


def test_holt_winters_is_the_old_name_of_double_exponential_smoothing() -> None:
    assert parse("holt_winters(x[5m], 0.5, 0.5)") == parse("double_exponential_smoothing(x[5m], 0.5, 0.5)")
    assert parse('x{holt_winters="holt_winters(1)"}') != parse('x{holt_winters="double_exponential_smoothing(1)"}')


def test_every_function_and_aggregation_that_is_let_through_is_evaluated() -> None:
    engine = Engine(Store())
    arguments = ("", "x", "x[5m]", "1", "0.5, x", "x, 1", "x[5m], 1", "0.5, x[5m]", "x, 1, 2", "x[5m], 0.5, 0.5",
                 "1, 2, x", 'x, "a", "b", "c", "d"', '"a", x')  # fmt: skip
    for name in FUNCTIONS | AGGREGATIONS:
        evaluated = 0
        for argument in arguments:
            try:
                tree = parse(f"{name}({argument})")
            except PromQLError:
                continue
            engine.instant(f"{name}({argument})", 1000)
            assert kind(tree) in ("vector", "scalar")
            evaluated += 1
        assert evaluated, name


@settings(derandomize=True)
@given(expressions)
def test_the_grammar_accepts_what_the_parser_accepts(expression: str) -> None:
    parse(expression)
    Grammar(expression, tokenize(expression)).check()


@settings(derandomize=True)
@given(expressions, st.data())
def test_any_damage_draws_an_error_with_a_place_or_still_parses(expression: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(expression)))
    with_what = data.draw(st.sampled_from([")", "(", "[", "]", "{", '"', ",", " by ", "5m", "@", "\n", "\x00", "é"]))
    damaged = expression[:at] + with_what + expression[at + data.draw(st.integers(0, 3)) :]
    try:
        parse(damaged)
    except PromQLError as error:
        assert error.line is not None
        assert error.column is not None
