"""Templates expand as Go's text/template with Prometheus' functions does."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from posttrain_watchdog.alerting.templates import Context, TemplateError, expand, parse


def samples(expression: str) -> list[dict[str, Any]]:
    if expression == "none":
        return []
    if expression == "bad(":
        raise ValueError("1:5: unexpected end")
    return [
        {"Labels": {"__name__": "up", "run": "b"}, "Value": 2.0},
        {"Labels": {"__name__": "up", "run": "a"}, "Value": 1.5},
    ]


CONTEXT = Context({"run": "r1", "gpu": "0"}, 0.123456, {"cluster": "c"}, "http://w", samples)


def text(template: str, value: float = 0.123456) -> str:
    return expand(parse(template), Context({"run": "r1", "gpu": "0"}, value, {"cluster": "c"}, "http://w", samples))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("plain { text }", "plain { text }"),
        ("{{ $labels.run }}/{{ .Labels.run }}/{{$.Labels.run}}", "r1/r1/r1"),
        ("{{ $value }} {{ .Value }}", "0.123456 0.123456"),
        ("[{{ $labels.absent }}]", "[]"),
        ("{{ $externalLabels.cluster }}", "c"),
        ('{{ printf "%.2f %s %5.1f|%-4s|%q" $value $labels.run 2.25 "a" "b" }}', '0.12 r1   2.2|a   |"b"'),
        ('{{ $value | printf "%.3f" }}', "0.123"),
        ('{{ printf "%d" $value }}', "%!d(float64=0.123456)"),
        ("{{ $value | humanizePercentage }}", "12.35%"),
        ("{{ humanize 1234567.0 }} {{ humanize 0.00012 }} {{ humanize1024 1048576.0 }}", "1.235M 120u 1Mi"),
        (
            "{{ humanizeDuration 3661.0 }} {{ humanizeDuration 0.0123 }} {{ humanizeDuration 90061 }}",
            "1h 1m 1s 12.3ms 1d 1h 1m 1s",
        ),
        ("{{ humanizeTimestamp 1435065584.128 }}", "2015-06-23 13:19:44.128 +0000 UTC"),
        ('{{ toUpper "a" }}{{ "B" | toLower }}{{ title "ab cd" }}', "AbAb Cd"),
        ('{{ reReplaceAll "r(\\\\d)" "run $1" $labels.run }}', "run 1"),
        ('{{ if eq $labels.gpu "0" }}zero{{ else if eq $labels.gpu "1" }}one{{ else }}many{{ end }}', "zero"),
        ('{{ if and (gt $value 0.1) (lt $value 0.2) }}in{{ end }}{{ if or false "" }}x{{ else }}out{{ end }}', "inout"),
        ('{{ range query "up" }}{{ .Labels.run }}={{ .Value }};{{ end }}', "b=2;a=1.5;"),
        ('{{ range $i, $s := query "up" | sortByLabel "run" }}{{ $i }}{{ $s | label "run" }}{{ end }}', "0a1b"),
        ('{{ with query "up" }}{{ . | first | value }}{{ end }}', "2"),
        ('{{ range query "none" }}x{{ else }}nothing{{ end }}', "nothing"),
        ('{{ $x := "a" }}{{ if true }}{{ $x = "b" }}{{ end }}{{ $x }}', "b"),
        ("a  {{- /* note */ -}}  b", "ab"),
        ("a {{- $labels.run -}} b", "ar1b"),
        ('{{ len "añ" }} {{ index $labels "run" }} {{ not true }}', "3 r1 false"),
        ('{{ `raw\\n` }}{{ "tab\\t" }}', "raw\\ntab\t"),
        ("{{ 1e21 }} {{ 100000.0 }} {{ 0.0000001 }} {{ -1.5 }}", "1e+21 100000 1e-07 -1.5"),
    ],
)
def test_what_users_write(template: str, expected: str) -> None:
    assert text(template) == expected


def test_values_that_are_not_finite_are_shown_as_go_shows_them() -> None:
    assert text("{{ $value }} {{ $value | humanize }}", math.inf) == "+Inf +Inf"
    assert text("{{ $value | humanizeDuration }}", math.nan) == "NaN"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("ab\n {{ $labels.x ", "2:2: unclosed action"),
        ("{{ nothing 1 }}", "1:4: function 'nothing' not defined"),
        ("{{ $x }}", "1:4: undefined variable '$x'"),
        ("{{ if true }}", "1:1: {{if}} without {{end}}"),
        ("{{ end }}", "1:1: unexpected {{end}}"),
        ("{{ }}", "1:1: missing value for command"),
        ('{{ template "x" }}', "1:1: {{template}} is not supported"),
        ("{{ 1 | }}", "1:1: missing value for command"),
        ("{{ ; }}", "1:4: unexpected ';' in action"),
        ("(" * 3 + "{{ " + "(" * 100 + "1" + ")" * 100 + " }}", "1:71: more than 64 levels of brackets"),
    ],
)
def test_a_fault_has_its_line_and_column(template: str, expected: str) -> None:
    with pytest.raises(TemplateError) as error:
        parse(template)
    assert str(error.value) == expected


@pytest.mark.parametrize(
    "template",
    [
        '{{ query "bad(" }}',
        '{{ query "none" | first }}',
        "{{ $labels.run.deeper }}",
        '{{ printf "%s" (index $labels 1 2) }}',
        '{{ humanize "x" }}',
        "{{ range 100000 }}{{ range 100000 }}x{{ end }}{{ end }}",
        '{{ reReplaceAll "(" "" "" }}',
        "{{ lt 1 }}",
    ],
)
def test_what_cannot_be_expanded_is_a_fault_and_ends(template: str) -> None:
    with pytest.raises(TemplateError):
        text(template)


def test_output_is_bounded() -> None:
    with pytest.raises(TemplateError, match="more than"):
        text("{{ range 9000 }}" + "x" * 100 + "{{ end }}")


def test_hostile_labels_are_data_and_never_expanded_again() -> None:
    hostile = Context({"run": '{{ query "up" }}<script>'}, 1.0, query=samples)
    assert expand(parse("{{ $labels.run }}"), hostile) == '{{ query "up" }}<script>'


@settings(max_examples=300, deadline=None)
@given(
    strategies.lists(
        strategies.sampled_from(
            ["{{", "}}", "{{-", "-}}", "if ", "else ", "end ", "range ", "with ", "$labels", ".run", "$x", ":=", "=",
             "|",              "(", ")", '"a"', "`", "'", "printf ", '"%d%s%v%*"', "010", "0x", "1e999", "-", ".",
             "/*", "*/", "query ",
             "index ", "humanize ", "reReplaceAll ", '"(("', "\n", "\x00", "é", "$", "and ", "slice ", "1", "\\"]
        ),
        max_size=14,
    )
)  # fmt: skip
def test_no_text_makes_anything_but_text_or_a_fault(pieces: list[str]) -> None:
    source = "".join(pieces)
    try:
        template = parse(source)
        expand(template, CONTEXT)
    except TemplateError:
        return


@settings(max_examples=200, deadline=None)
@given(strategies.text(), strategies.floats())
def test_hostile_labels_and_values_come_out_as_they_went_in(label: str, value: float) -> None:
    context = Context({"run": label}, value, query=samples)
    assert expand(parse("{{ $labels.run }}"), context) == label
    for name in ("humanize", "humanize1024", "humanizeDuration", "humanizePercentage", "printf `%.3f`"):
        assert expand(parse(f"{{{{ $value | {name} }}}}"), context)
    with suppress(TemplateError):
        expand(parse("{{ humanizeTimestamp $value }}"), context)
    for name in ("title", "toUpper", "toLower", "stripPort", "stripDomain", "reReplaceAll `a` `$1`", "match `a`"):
        expand(parse(f"{{{{ $labels.run | {name} }}}}"), context)
