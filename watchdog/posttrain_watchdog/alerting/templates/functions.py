"""The functions that a template may call: Go's built-ins and Prometheus' own (prometheus/template, v2.42).

Pure but for `query`, which the caller brings. A bad argument is a TemplateError with the words Go would use.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from html import escape
from typing import Any
from urllib.parse import quote_plus

import re2

from posttrain_watchdog.alerting.templates.parse import TemplateError
from posttrain_watchdog.config import seconds

MAX_OUTPUT = 65_536
_SI_UP = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
_SI_DOWN = ("", "m", "u", "n", "p", "f", "a", "z", "y")
_BINARY = ("", "ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")


def truth(value: Any) -> bool:
    """Go's idea of a true value."""
    if isinstance(value, float):
        return value != 0
    return bool(value)


def go_float(value: float, verb: str = "v", precision: int | None = None) -> str:
    """A float as Go's fmt prints it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if verb in "fF":
        return f"{value:.{6 if precision is None else precision}f}"
    if verb in "eE":
        return f"{value:.{6 if precision is None else precision}{verb}}"
    if precision is not None:
        text = f"{value:.{precision or 1}g}"
    elif value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    else:
        exponent = math.floor(math.log10(abs(value)))
        text = repr(value)
        if -5 < exponent < 21:
            if "e" in text:
                text = f"{value:.0f}" if value == int(value) else format(value, ".17f").rstrip("0")
            return text.removesuffix(".0")
        digits = text.replace(".", "").split("e")[0].lstrip("-").strip("0") or "0"
        head = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        text = f"{'-' if value < 0 else ''}{head}e{exponent:+03d}"
    return text.upper() if verb in "GE" else text


def shown(value: Any) -> str:
    """A value as Go's Print shows it."""
    if value is None:
        return "<no value>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_float(value)
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{k}:{shown(v)}" for k, v in sorted(value.items())) + "]"
    if isinstance(value, (list, tuple)):
        return "[" + " ".join(shown(v) for v in value) + "]"
    return str(value)


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TemplateError(f"can't convert {type(value).__name__} to float")
    try:
        return float(value)
    except ValueError:
        raise TemplateError(f'strconv.ParseFloat: parsing "{value}": invalid syntax') from None


_VERB = re.compile(r"%([-+# 0]*)(\d+)?(?:\.(\d*))?(.)", re.DOTALL)


def printf(pattern: Any, *arguments: Any) -> str:
    """Go's Sprintf with the verbs that make sense for strings and numbers."""
    given = list(arguments)

    def one(match: re.Match[str]) -> str:
        flags, width, precision, verb = match.groups()
        if verb == "%":
            return "%"
        if not given:
            return f"%!{verb}(MISSING)"
        text = _formatted(given.pop(0), verb, None if precision is None else int(precision or 0), flags)
        if width and int(width) <= 1024:
            missing = int(width) - len(text)
            if "-" in flags:
                return text + " " * missing
            if "0" in flags and verb in "dfFeEgGxX":
                sign = text[0] if text[:1] in "+-" else ""
                return sign + "0" * missing + text[len(sign) :]
            return " " * missing + text
        return text

    if "%" not in str(pattern):
        text = str(pattern)
    else:
        text = _VERB.sub(one, str(pattern))
    extra = ", ".join(f"{type(a).__name__}={shown(a)}" for a in given)
    return f"{text}%!(EXTRA {extra})" if given else text


def _formatted(value: Any, verb: str, precision: int | None, flags: str) -> str:
    plus = "+" in flags and isinstance(value, (int, float)) and not isinstance(value, bool)
    if verb == "v":
        text = shown(value) if precision is None or not isinstance(value, float) else go_float(value, "g", precision)
    elif verb in "fFeEgG" and isinstance(value, float):
        text = go_float(value, verb, precision)
    elif verb in "dxXo" and isinstance(value, int) and not isinstance(value, bool):
        text = format(value, verb)
    elif verb == "x" and isinstance(value, str):
        text = value.encode().hex()
    elif verb in "sq" and isinstance(value, str):
        text = value if precision is None else value[:precision]
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"' if verb == "q" else text
    elif verb == "t" and isinstance(value, bool):
        text = shown(value)
    elif verb == "c" and isinstance(value, int):
        text = chr(value)
    else:
        kind = {"float": "float64", "str": "string"}.get(type(value).__name__, type(value).__name__)
        return f"%!{verb}({kind}={shown(value)})"
    return "+" + text if plus and value >= 0 and not text.startswith("+") else text


def humanize(value: Any) -> str:
    v = number(value)
    if v == 0 or math.isnan(v) or math.isinf(v):
        return f"{go_float(v, 'g', 4)}"
    if abs(v) >= 1:
        place = min((math.floor(math.log10(abs(v)) / 3 + 1e-12)), len(_SI_UP) - 1)
        return f"{go_float(v / 1000**place, 'g', 4)}{_SI_UP[place]}"
    place = min(-(math.floor(math.log10(abs(v)) / 3 + 1e-12)), len(_SI_DOWN) - 1)
    return f"{go_float(v * 1000**place, 'g', 4)}{_SI_DOWN[place]}"


def humanize1024(value: Any) -> str:
    v = number(value)
    if abs(v) <= 1 or math.isnan(v) or math.isinf(v):
        return go_float(v, "g", 4)
    place = 0
    while abs(v) >= 1024 and place < len(_BINARY) - 1:
        v, place = v / 1024, place + 1
    return f"{go_float(v, 'g', 4)}{_BINARY[place]}"


def humanize_duration(value: Any) -> str:
    v = number(value)
    if math.isnan(v) or math.isinf(v):
        return go_float(v, "g", 4)
    if v == 0:
        return "0s"
    if abs(v) >= 1:
        sign, whole = ("-" if v < 0 else ""), int(abs(v))
        days, hours, minutes, seconds = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
        if days:
            return f"{sign}{days}d {hours}h {minutes}m {seconds}s"
        if hours:
            return f"{sign}{hours}h {minutes}m {seconds}s"
        if minutes:
            return f"{sign}{minutes}m {seconds}s"
        return f"{go_float(v, 'g', 4)}s"
    prefix = ""
    for unit in ("m", "u", "n", "p", "f", "a", "z", "y"):
        if abs(v) >= 1:
            break
        prefix, v = unit, v * 1000
    return f"{go_float(v, 'g', 4)}{prefix}s"


def humanize_percentage(value: Any) -> str:
    return f"{go_float(number(value) * 100, 'g', 4)}%"


def humanize_timestamp(value: Any) -> str:
    v = number(value)
    if math.isnan(v) or math.isinf(v):
        return go_float(v, "g", 4)
    try:
        moment = datetime.fromtimestamp(math.floor(v), timezone.utc)
    except (OverflowError, OSError, ValueError):
        raise TemplateError(f"{go_float(v)} cannot be a timestamp") from None
    fraction = f"{v - math.floor(v):.3f}"[1:].rstrip("0").rstrip(".")
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


def _pattern(text: Any) -> Any:
    try:
        return re2.compile(str(text))
    except re2.error as error:
        raise TemplateError(f"error parsing regexp: {error}") from None


def replace_all(pattern: Any, replacement: Any, text: Any) -> str:
    """reReplaceAll: RE2, with $1 and ${1} in the replacement."""
    compiled = _pattern(pattern)

    def one(match: Any) -> str:
        def group(found: re.Match[str]) -> str:
            name = found.group(1) or found.group(2)
            if name == "":
                return "$"
            try:
                return str(match.group(int(name) if name.isdigit() else name) or "")
            except (IndexError, KeyError, re2.error):
                return ""

        return re.sub(r"\$(?:\{(\w+)\}|(\w+|(?=\$)))", group, str(replacement))

    return str(compiled.sub(one, str(text)))


def _compare(name: str, holds: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def compare(first: Any, *rest: Any) -> bool:
        if not rest:
            raise TemplateError(f"missing argument for comparison {name}")
        both = rest if name == "eq" else rest[:1]
        for other in both:
            numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (first, other))
            if not numeric and type(first) is not type(other):
                raise TemplateError("incompatible types for comparison")
            if holds(first, other):
                return True
        return False

    return compare


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(key, "")
        elif isinstance(value, Sequence) and isinstance(key, int) and 0 <= key < len(value):
            value = value[key]
        else:
            raise TemplateError(f"error calling index: no element {shown(key)}")
    return value


def _length(value: Any) -> int:
    if isinstance(value, (str, Mapping, list, tuple)):
        return len(value.encode()) if isinstance(value, str) else len(value)
    raise TemplateError(f"len of type {type(value).__name__}")


def _first(samples: Any) -> Any:
    if not samples:
        raise TemplateError("first() called on vector with no elements")
    return samples[0]


def _sample(what: str) -> Callable[..., Any]:
    def read(*arguments: Any) -> Any:
        sample = arguments[-1]
        if not isinstance(sample, Mapping) or "Value" not in sample:
            raise TemplateError(f"{what} of something that is no sample")
        if what == "value":
            return sample["Value"]
        return sample["Labels"].get(arguments[0] if what == "label" else "__value__", "")

    return read


def _strip_port(host: Any) -> str:
    name, _, port = str(host).rpartition(":")
    return name if port.isdigit() and name else str(host)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "not": lambda v: not truth(v),
    "len": _length,
    "index": _index,
    "print": lambda *a: "".join(shown(v) for v in a),
    "println": lambda *a: " ".join(shown(v) for v in a) + "\n",
    "printf": printf,
    "html": lambda *a: escape("".join(shown(v) for v in a)),
    "urlquery": lambda *a: quote_plus("".join(shown(v) for v in a)),
    "eq": _compare("eq", lambda a, b: bool(a == b)),
    "ne": _compare("ne", lambda a, b: bool(a != b)),
    "lt": _compare("lt", lambda a, b: bool(a < b)),
    "le": _compare("le", lambda a, b: bool(a <= b)),
    "gt": _compare("gt", lambda a, b: bool(a > b)),
    "ge": _compare("ge", lambda a, b: bool(a >= b)),
    "first": _first,
    "value": _sample("value"),
    "label": _sample("label"),
    "strvalue": _sample("strvalue"),
    "sortByLabel": lambda name, samples: sorted(samples, key=lambda s: s["Labels"].get(name, "")),
    "humanize": humanize,
    "humanize1024": humanize1024,
    "humanizeDuration": humanize_duration,
    "humanizePercentage": humanize_percentage,
    "humanizeTimestamp": humanize_timestamp,
    "toTime": humanize_timestamp,
    "title": lambda v: re.sub(r"(^|\s)(\S)", lambda m: m.group(1) + m.group(2).upper(), str(v)),
    "toUpper": lambda v: str(v).upper(),
    "toLower": lambda v: str(v).lower(),
    "match": lambda pattern, text: bool(_pattern(pattern).search(str(text))),
    "reReplaceAll": replace_all,
    "stripPort": _strip_port,
    "stripDomain": lambda v: _strip_port(v).split(".")[0] if not re.match(r"^[\d.]+$|.*:.*:", str(v)) else str(v),
    "parseDuration": lambda v: seconds(str(v)),
    "safeHtml": str,
    "args": lambda *a: {f"arg{i}": v for i, v in enumerate(a)},
    "externalURL": lambda: "",
    "pathPrefix": lambda: "",
    "graphLink": lambda expr: f"/graph?g0.expr={quote_plus(str(expr))}&g0.tab=0",
    "tableLink": lambda expr: f"/graph?g0.expr={quote_plus(str(expr))}&g0.tab=1",
}
NAMES = frozenset(FUNCTIONS) | {"and", "or", "query"}
"""Functions known to the parser; `and`, `or` and `query` belong to the evaluator."""
