# ruff: noqa: E501 - templates are read side by side
"""Templates expand as they do in Prometheus: hundreds of them in one run of promtool."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from posttrain_watchdog.alerting.templates import TemplateError, parse
from posttrain_watchdog.alerting.unit_tests import run

NUMBERS = [
    "0",
    "1",
    "-1",
    "0.5",
    "1e-7",
    "0.0000123456",
    "0.001",
    "0.0123",
    "0.999",
    "1.5",
    "2.675",
    "9.9999",
    "12.345",
    "59.99",
    "60",
    "61.5",
    "3599",
    "3600",
    "86399",
    "86400",
    "90061.7",
    "1023",
    "1024",
    "1048576",
    "999.95",
    "1000",
    "123456",
    "1234567.891",
    "1e9",
    "1e20",
    "1e21",
    "1e22",
    "1.7976931348623157e308",
    "5e-324",
    "-0.00012",
    "-12345.678",
    "-90061",
    "1435065584.128",
]
FUNCTIONS = ("humanize", "humanize1024", "humanizePercentage", "humanizeDuration", "humanizeTimestamp")
VERBS = (
    "%v",
    "%f",
    "%.2f",
    "%8.3f|",
    "%-8.1f|",
    "%+.1f",
    "%08.2f",
    "%e",
    "%.3e",
    "%g",
    "%.3g",
    "%G",
    "%d",
    "%s",
    "%q",
    "%5.0f",
    "%6.2f%%",
    "%t",
    "%x",
)
TEMPLATES = [
    *(f"{{{{ {name} {number} }}}}" for name in FUNCTIONS for number in NUMBERS if not (name == "humanizeTimestamp" and len(number) > 18) and "e2" not in number and "308" not in number),
    *(f"{{{{ {number} }}}} {{{{ printf \"%v\" {number} }}}}" for number in NUMBERS),
    *(f'{{{{ printf "{verb}" $value }}}} {{{{ printf "{verb}" 1234567.891 }}}}' for verb in VERBS),
    *(f'{{{{ printf "{verb}" "text" }}}}' for verb in ("%s", "%q", "%v", "%10s|", "%-10s|", "%.2s", "%d", "%f", "%x", "%X")),
    *(f'{{{{ printf "{verb}" 42 }}}}' for verb in ("%d", "%5d|", "%-5d|", "%05d", "%+d", "%x", "%X", "%o", "%b", "%c", "%v", "%f", "%s", "%q", "%#x", "%e")),
    '{{ printf "%s-%s" "a" }}', '{{ printf "%s" "a" "b" }}', '{{ printf "%t %v" true false }}', '{{ printf "%%" }}', '{{ printf "%!" }}',
    '{{ printf "%*d" 5 42 }}', '{{ printf "%[2]s %[1]s" "a" "b" }}', '{{ printf "%s" $labels }}', '{{ printf "%5t|" true }}', '{{ printf "%6.2v|" 3.14159 }}',
    "{{ $labels }}", "{{ . }}", "{{ $ }}", "{{ $labels.run }} {{ .Labels.run }} {{ $labels.nothing }}|", "{{ $value }} {{ .Value }}", "{{ $externalLabels.c }} {{ .ExternalLabels.c }}", "{{ $externalURL }} {{ .ExternalURL }} {{ externalURL }} {{ pathPrefix }}",
    '{{ toUpper "abc" }} {{ toLower "ABC" }} {{ title "the quick-brown fox_a it\'s" }}', '{{ "abc" | toUpper | printf "%s!" }}',
    '{{ reReplaceAll "r(.)" "${1}x$1" "r1r2" }}', '{{ reReplaceAll "(?P<n>r)" "$n-$0-$$" "r1" }}', '{{ reReplaceAll "a" "$1x" "aa" }}', '{{ reReplaceAll "" "-" "abc" }}', '{{ match "^r" "run" }} {{ match "a.c" "xabcx" }}',
    '{{ stripPort "host:80" }} {{ stripPort "[::1]:80" }} {{ stripPort "host" }} {{ stripDomain "a.b.c:80" }} {{ stripDomain "1.2.3.4:80" }} {{ stripDomain "a.b" }}',
    '{{ parseDuration "1h30m" }} {{ parseDuration "5m" | humanizeDuration }}', '{{ args 1 "x" }}', '{{ with args 1 "x" }}{{ .arg0 }}{{ .arg1 }}{{ end }}',
    '{{ query "x" }}', '{{ query "x" | first }}', '{{ query "x" | first | value }}', '{{ query "x" | first | label "run" }}', '{{ query "x" | first | strvalue }}|', '{{ range query "y" | sortByLabel "k" }}{{ .Labels.k }}={{ .Value }},{{ end }}', '{{ range $i, $e := query "y" | sortByLabel "k" }}{{ $i }}:{{ $e | value }};{{ end }}',
    '{{ with query "none" }}some{{ else }}none{{ end }}', '{{ range query "none" }}x{{ else }}empty{{ end }}', '{{ query "none" | first }}', '{{ query "bad(" }}', '{{ query "1" }}', '{{ query "time()" | first | value }}', "{{ query \"x\" | first | label \"nothing\" }}|", '{{ (query "x" | first).Value }}', '{{ (index (query "x") 0).Labels.run }}', '{{ len (query "y") }}',
    '{{ if eq $labels.run "r1" }}a{{ else }}b{{ end }}', '{{ if gt $value 5.0 }}a{{ else if gt $value 1.0 }}b{{ else }}c{{ end }}', "{{ if $labels.nothing }}a{{ else }}b{{ end }}", "{{ if and true 0 }}a{{ end }}{{ and 1 2 }}{{ or 0 3 }}{{ not 1 }}", '{{ eq 1 1 }}{{ ne "a" "b" }}{{ lt 1 2 }}{{ le 2 2 }}{{ gt 1.5 1.0 }}{{ ge "b" "a" }}{{ eq "a" "b" "a" }}',
    "{{ eq 1 1.0 }}", '{{ eq "a" 1 }}', "{{ lt 1 1.5 }}", "{{ gt $value 5 }}", "{{ eq $value 12 }}", "{{ not $value }}", "{{ if $value }}yes{{ end }}", "{{ eq true true }}", "{{ lt true false }}",
    '{{ index $labels "run" }}', '{{ index $labels "nothing" }}|', '{{ len $labels }} {{ len "añb" }}', '{{ slice "abcdef" 1 3 }}', '{{ html "<a&b>" }} {{ js "it\'s" }} {{ urlquery "a b&c" }}', '{{ print "a" 1 2 "b" 3.5 }} {{ println "x" 1 }}', "{{ print 1 2 }}", '{{ print "a" "b" }}',
    "a {{- 1 -}} b", "a {{ 1 -}}  b", "a {{- /* c */ -}} b", "a{{/* c */}}b", "a\n  {{- 1 }}\n  b", '{{ `raw\\n{{}}` }}', '{{ "\\x41\\u00e9\\t|\\"" }}', "{{ 'a' }}", "{{ 0x10 }} {{ 1_000 }} {{ 010 }} {{ 0b11 }} {{ 1e3 }} {{ .5 }} {{ -3 }} {{ +3 }}",
    '{{ $x := 1 }}{{ $x = 2 }}{{ $x }}', '{{ $x := "a" }}{{ if true }}{{ $x := "b" }}{{ end }}{{ $x }}', '{{ with $x := "v" }}{{ $x }}{{ . }}{{ end }}', '{{ with "" }}a{{ else }}b{{ end }}', '{{ range $k, $v := $labels }}{{ $k }}={{ $v }};{{ end }}', "{{ range $v := $labels }}{{ $v }};{{ end }}", '{{ define "t" }}in {{ . }}{{ end }}{{ template "t" 5 }}', '{{ block "b" 3 }}[{{ . }}]{{ end }}', "{{ range query \"y\" }}{{ break }}{{ end }}", '{{ range query "y" | sortByLabel "k" }}{{ if eq .Labels.k "b" }}{{ continue }}{{ end }}{{ .Labels.k }}{{ end }}',
    "{{ $labels.run.deep }}", "{{ $value.x }}", '{{ printf }}', "{{ humanize }}", '{{ humanize "x" }}', '{{ humanize "12345" }}', '{{ 1 | 2 }}', '{{ $labels.run | nothing_at_all }}', "{{ toUpper 1 }}", '{{ first 1 }}', "{{ nil }}", "{{ true }}", "{{ $value | humanize | toUpper }}", '{{ graphLink "up > 1" }} {{ tableLink "up" }}', '{{ safeHtml "<b>" }}', '{{ toTime 0.0 }}', '{{ label "run" (query "x" | first) }}', '{{ len 3 }}', '{{ index "abc" 1 }}', '{{ index (query "x") 5 }}', '{{ call 1 }}',
]  # fmt: skip


DEPARTURES = {
    # of Go, and rare: widths and places taken from the arguments, blocks that call one another, jumps out of loops
    '{{ printf "%*d" 5 42 }}', '{{ printf "%[2]s %[1]s" "a" "b" }}', '{{ define "t" }}in {{ . }}{{ end }}{{ template "t" 5 }}', '{{ block "b" 3 }}[{{ . }}]{{ end }}', '{{ range query "y" }}{{ break }}{{ end }}', '{{ range query "y" | sortByLabel "k" }}{{ if eq .Labels.k "b" }}{{ continue }}{{ end }}{{ .Labels.k }}{{ end }}', "{{ 0x10 }} {{ 1_000 }} {{ 010 }} {{ 0b11 }} {{ 1e3 }} {{ .5 }} {{ -3 }} {{ +3 }}", "{{ call 1 }}", '{{ html "<a&b>" }} {{ js "it\'s" }} {{ urlquery "a b&c" }}',
    # addresses in memory, and a crash of theirs
    '{{ query "x" }}', '{{ query "1" }}', "{{ $externalURL }} {{ .ExternalURL }} {{ externalURL }} {{ pathPrefix }}",
}  # fmt: skip


def rule(number: int, template: str) -> dict[str, object]:
    return {"alert": f"T{number}", "expr": "x", "annotations": {"s": template}}


def expanded(report: str) -> dict[int, str]:
    """Alert number -> annotation, from the failures of tests that expect nothing."""
    found = re.finditer(r'alertname: T(\d+), time: 0s.*?Annotations:\{s="(.*?)"\}\n', report, re.DOTALL)
    return {int(match.group(1)): match.group(2) for match in found}


@pytest.mark.real
def test_templates_expand_as_in_prometheus(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    templates = [t for t in TEMPLATES if t not in DEPARTURES]
    refused = []
    for place, template in enumerate(templates):
        try:
            parse(template)
        except TemplateError:
            refused.append(place)
    groups = [{"name": "g", "rules": [rule(i, t) for i, t in enumerate(templates) if i not in refused]}]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": groups}))
    (tmp_path / "refused.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "g", "rules": [rule(i, templates[i]) for i in refused]}]})
    )
    test = {
        "interval": "1m",
        "external_labels": {"c": "z"},
        "external_url": "http://u:9/p",
        "input_series": [
            {"series": 'x{run="r1",gpu="0"}', "values": "12.3456"},
            {"series": 'y{k="b"}', "values": "2"},
            {"series": 'y{k="a"}', "values": "1.5"},
        ],
        "alert_rule_test": [
            {"eval_time": "0s", "alertname": f"T{i}"} for i in range(len(templates)) if i not in refused
        ],
    }
    (tmp_path / "t.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [test]}))
    theirs = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "t.yml")], capture_output=True, text=True, check=False
    )
    expected, got = expanded(theirs.stderr), expanded(run([tmp_path / "t.yml"]).text())
    assert len(expected) == len(templates) - len(refused) > 300
    fault = "<error expanding template"
    different = {
        templates[i]: (got.get(i), text)
        for i, text in expected.items()
        if got.get(i) != text and not (text.startswith(fault) and (got.get(i) or "").startswith(fault))
    }
    assert different == {}
    check = subprocess.run(
        ["promtool", "check", "rules", str(tmp_path / "refused.yml")], capture_output=True, text=True, check=False
    )
    assert check.stderr.count("template: __") >= len(refused), "what is refused here is refused there"
