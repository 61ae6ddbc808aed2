"""The functions that a template may call: Go's built-ins and Prometheus' own (prometheus/template, v2.42).

Pure but for `query`, which the caller brings. A bad argument is a TemplateError with the words Go would use.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from html import escape
from typing import Any
from urllib.parse import quote_plus

import re2

from posttrain_watchdog.alerting.templates.parse import TemplateError
from posttrain_watchdog.config import seconds

MAX_OUTPUT = 65_536
_EXPONENT_FROM = 6
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
    text = _shortest(value) if precision is None else f"{value:.{precision or 1}g}"
    return text.upper() if verb in "GE" else text


def _shortest(value: float) -> str:
    """The fewest digits that read back as the same number, with an exponent below 1e-4 and from 1e6 on (strconv)."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, minus = "".join(map(str, digits)), "-" if sign else ""
    power = len(text) - 1 + int(exponent)
    if value == 0:
        return minus + "0"
    if power < -4 or power >= _EXPONENT_FROM:
        return f"{minus}{text[0]}{'.' + text[1:] if len(text) > 1 else ''}e{power:+03d}"
    if power < 0:
        return f"{minus}0.{'0' * (-power - 1)}{text}"
    whole, rest = text[: power + 1].ljust(power + 1, "0"), text[power + 1 :]
    return f"{minus}{whole}{'.' + rest if rest else ''}"


def shown(value: Any) -> str:
    """A value as Go's Print shows it."""
    if value is None:
        return "<no value>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_float(value)
    if isinstance(value, Mapping) and value.keys() >= {"Labels", "Value"}:
        # a struct of Go: a sample, or the root
        return "{" + " ".join(shown(v) for v in value.values()) + "}"
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
    extra = ", ".join(f"{_kind(a)}={shown(a)}" for a in given)
    return f"{text}%!(EXTRA {extra})" if given else text


def _kind(value: Any) -> str:
    return {"float": "float64", "str": "string"}.get(type(value).__name__, type(value).__name__)


def _formatted(value: Any, verb: str, precision: int | None, flags: str) -> str:
    plus = "+" in flags and isinstance(value, (int, float)) and not isinstance(value, bool)
    if verb == "v":
        text = shown(value) if precision is None or not isinstance(value, float) else go_float(value, "g", precision)
    elif verb in "fFeEgG" and isinstance(value, float):
        text = go_float(value, verb, precision)
    elif verb in "dxXob" and isinstance(value, int) and not isinstance(value, bool):
        text = format(value, verb)
        if "#" in flags and verb in "xXob":
            text = {"x": "0x", "X": "0X", "o": "0", "b": "0b"}[verb] + text
    elif verb in "xX" and isinstance(value, str):
        text = value.encode().hex()
        text = text.upper() if verb == "X" else text
    elif verb in "xX" and isinstance(value, float):
        mantissa, power = value.hex().split("p")
        text = f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{int(power):+03d}"
        text = text.upper() if verb == "X" else text
    elif verb == "s" and isinstance(value, (Mapping, list, tuple)):
        text = shown(value)
    elif verb == "q" and isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 0x110000:
        text = f"'{chr(value)}'"
    elif verb in "sq" and isinstance(value, str):
        text = value if precision is None else value[:precision]
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"' if verb == "q" else text
    elif verb == "t" and isinstance(value, bool):
        text = shown(value)
    elif verb == "c" and isinstance(value, int):
        text = chr(value)
    else:
        return f"%!{verb}({_kind(value)}={shown(value)})"
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
    # to the millisecond, cut off towards zero, as model.TimeFromUnixNano does
    whole = int(int(v * 1e9) / 1_000_000)
    try:
        moment = datetime.fromtimestamp(whole // 1000, timezone.utc)
    except (OverflowError, OSError, ValueError):
        raise TemplateError(f"{go_float(v)} cannot be a timestamp") from None
    fraction = f".{whole % 1000:03d}".rstrip("0").rstrip(".")
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
            if name == "$":
                return "$"
            try:
                return str(match.group(int(name) if name.isdigit() else name) or "")
            except (IndexError, KeyError, re2.error):
                return ""

        return re.sub(r"\$(?:\{(\w+)\}|(\w+|\$))", group, str(replacement))

    return str(compiled.sub(one, str(text)))


def _compare(name: str, holds: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def compare(first: Any, *rest: Any) -> bool:
        if not rest:
            raise TemplateError(f"missing argument for comparison {name}")
        both = rest if name == "eq" else rest[:1]
        for other in both:
            # as Go: whole numbers are never compared with others, and truth has no order
            if type(first) is not type(other) or not isinstance(first, (str, int, float)):
                raise TemplateError("incompatible types for comparison")
            if isinstance(first, bool) and name not in ("eq", "ne"):
                raise TemplateError("invalid type for comparison")
            if holds(first, other):
                return True
        return False

    return compare


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(key, "")
        elif isinstance(value, str) and isinstance(key, int) and 0 <= key < len(value.encode()):
            value = value.encode()[key]
        elif isinstance(value, Sequence) and isinstance(key, int) and 0 <= key < len(value):
            value = value[key]
        else:
            raise TemplateError(f"error calling index: index out of range: {shown(key)}")
    return value


def _length(value: Any) -> int:
    if isinstance(value, (str, Mapping, list, tuple)):
        return len(value.encode()) if isinstance(value, str) else len(value)
    raise TemplateError(f"len of type {type(value).__name__}")


def _slice(value: Any, *bounds: Any) -> Any:
    if not isinstance(value, (str, list)) or not all(isinstance(b, int) and 0 <= b <= len(value) for b in bounds):
        raise TemplateError("error calling slice: index out of range")
    return value[slice(*bounds)] if len(bounds) > 1 else value[bounds[0] :] if bounds else value


def _print(*values: Any) -> str:
    """Go's Sprint: a space between two that are not text."""
    parts: list[str] = []
    for place, value in enumerate(values):
        if place and not isinstance(value, str) and not isinstance(values[place - 1], str):
            parts.append(" ")
        parts.append(shown(value))
    return "".join(parts)


def _title(text: str) -> str:
    """Go's strings.Title: a letter begins a word after anything but a letter, a digit or an underscore."""
    return re.sub(r"(?<!\w)\w", lambda m: m.group().upper(), text)


def _host_port(host: str) -> tuple[str, str] | None:
    match = re.fullmatch(r"(?:\[([^\]]*)\]|([^:\[\]]*)):([^:]*)", host)
    return None if match is None else (match.group(1) if match.group(1) is not None else match.group(2), match.group(3))


def _strip_port(host: str) -> str:
    parts = _host_port(host)
    return host if parts is None else parts[0]


def _strip_domain(host: str) -> str:
    name, port = _host_port(host) or (host, "")
    if not re.fullmatch(r"\d+\.\d+\.\d+\.\d+|[0-9a-fA-F:]*:[0-9a-fA-F:.]*", name):
        name = name.split(".")[0]
    return f"{name}:{port}" if port else name


def _of_text(change: Callable[[str], str]) -> Callable[[Any], str]:
    def call(value: Any) -> str:
        if not isinstance(value, str):
            raise TemplateError(f"expected string; found {shown(value)}")
        return change(value)

    return call


def _first(samples: Any) -> Any:
    if not isinstance(samples, list):
        raise TemplateError(f"can't handle {shown(samples)} for arg of type template.queryResult")
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


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "not": lambda v: not truth(v),
    "len": _length,
    "index": _index,
    "slice": _slice,
    "print": _print,
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
    "title": _of_text(_title),
    "toUpper": _of_text(str.upper),
    "toLower": _of_text(str.lower),
    "match": lambda pattern, text: bool(_pattern(pattern).search(str(text))),
    "reReplaceAll": replace_all,
    "stripPort": _of_text(_strip_port),
    "stripDomain": _of_text(_strip_domain),
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
