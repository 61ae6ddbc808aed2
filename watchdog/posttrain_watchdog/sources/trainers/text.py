"""What the lines of all trainers have in common: prefixes, timestamps, numbers, dicts as Python prints them.

Pure text in, plain data out; nothing is ever evaluated. A number that cannot be read is None.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping, Sequence

import msgspec

Numbers = dict[str, float | None]

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RAY = re.compile(r"^\((?:[\w.\-]+(?:\(\w+\))?(?: pid=\d+)?(?:, ip=[\w.:]+)?|driver)\) ?")
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
_STAMP = re.compile(
    r"^\[?(?:(\d{4})-(\d\d)-(\d\d)[T ])?(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?(Z|[+-]\d\d:?\d\d)?\]?[ \t]*(?:[-|] )?"
)
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)")
_WRAPPED = re.compile(
    r"(?:np|numpy|torch|jnp)?\.?(?:float|int|uint|bfloat|tensor|array|Tensor)\w*\(([^(),\[\]]+)[^()]*\)"
)
_PAIR = re.compile(r"""['"]([^'"]{1,200})['"]\s*:\s*(?:'([^']*)'|"([^"]*)"|((?:[^,{}()\[\]]|\([^()]*\))+))""")
_WORDS = {
    "nan": float("nan"),
    "inf": float("inf"),
    "infinity": float("inf"),
    "-inf": float("-inf"),
    "-infinity": float("-inf"),
}
_WORDS |= {"+inf": float("inf"), "+infinity": float("inf"), "true": 1.0, "false": 0.0}

_BARE = re.compile(r"(?<=[:,\[\s])([-+]?(?:nan|NaN|inf|Infinity))(?=\s*[,}\]])")
_NUMPY = re.compile(r"(?:np|numpy)\.\w+\(([^()]*)\)")
_SCALARS = ("np.float64(", "np.float32(", "np.int64(", "np.int32(")
_RANK = re.compile(r"\[(?:rank|default)(\d+)\]:? ?")

_LONGEST_TOLERATED = 1 << 20

_list = msgspec.json.Decoder(list[float])
_fast = msgspec.json.Decoder(dict[str, float | None], strict=False)


def uncoloured(line: str) -> str:
    """The line without the sequences that colour it or move the cursor."""
    return _ANSI.sub("", line) if "\x1b" in line else line


def bare(line: str) -> str:
    """The line without colour, NUL bytes, what a progress bar overwrote, and the prefixes that Ray puts in front."""
    if "\r" in line:
        line = line.rstrip("\r").rsplit("\r", 1)[-1]
    line = uncoloured(line)
    if "\0" in line:
        line = line.replace("\0", "")
    while line.startswith("(") and (match := _RAY.match(line)):
        line = line[match.end() :]
    if line.endswith(("cluster]", "deduplication)")) or "across cluster]" in line:
        line = _REPEATED.sub("", line)
    return line


def rank(line: str) -> tuple[int | None, str]:
    """(rank, the rest) of a line that torchrun or a logger marked with its rank in front: `[rank3]:`, `[default0]:`."""
    match = _RANK.match(line) if line.startswith("[") else None
    return (None, line) if match is None else (int(match.group(1)), line[match.end() :])


class Stamps:
    """Timestamps of one log. A time of day without a date counts on from the day before when it passes midnight."""

    def __init__(self) -> None:
        self._day = 0.0
        self._last = 0.0

    def take(self, line: str) -> tuple[float | None, str]:
        """(seconds or None, the rest)."""
        if not line[:1].isdigit() and line[:1] != "[":
            return None, line
        time, rest = stamp(line, self._day)
        if time is not None:
            if time < 1e8 and time < self._last - 43_200:
                self._day += 86_400
                time += 86_400
            self._last = time
        return time, rest


def stamp(line: str, day: float = 0.0) -> tuple[float | None, str]:
    """(seconds since the epoch or None, the rest). A time without a date counts from `day`."""
    match = _STAMP.match(line)
    if match is None:
        return None, line
    year, month, date, hour, minute, second, fraction, zone = match.groups()
    clock = int(hour) * 3600 + int(minute) * 60 + int(second) + float("0." + (fraction or "0"))
    if year is None:
        return day + clock, line[match.end() :]
    try:
        start = calendar.timegm((int(year), int(month), int(date), 0, 0, 0))
    except ValueError:
        return None, line
    offset = 0
    if zone and zone != "Z":
        offset = (1 if zone[0] == "+" else -1) * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
    return start + clock - offset, line[match.end() :]


def number(text: str) -> float | None:
    """A number as people's loggers write it: 1e-06, '0.5', 1,234, nan, np.float64(0.1), tensor(0.1), 31.2%."""
    text = text.strip().strip("'\"")
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        pass
    found = _WORDS.get(text.lower())
    if found is not None:
        return found
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped is not None:
        return number(wrapped.group(1))
    if text.endswith("%"):
        inner = number(text[:-1])
        return None if inner is None else inner / 100
    if _NUMBER.fullmatch(text):
        return float(text.replace(",", ""))
    return None


def python_dict(text: str) -> Numbers:
    """The numbers of a dict as Python prints it, up to its closing brace; keys whose value is no number are None.

    A fast path for what is JSON but for its quotes, then a tolerant one: bare nan, None, tensors, nested dicts (whose
    inner keys count as they stand), anything behind the brace.
    """
    end = text.find("}")
    quick = text[: end + 1 or None].replace("'", '"')
    if "None" in quick:
        quick = quick.replace(": None", ": null")
    try:
        return _fast.decode(quick)
    except (msgspec.DecodeError, UnicodeError):
        pass
    if len(text) > _LONGEST_TOLERATED:
        return {}
    text = text[: text.rfind("}") + 1 or None]
    try:
        return _fast.decode(_NUMPY.sub(r"\1", _BARE.sub(r'"\1"', quick)))
    except (msgspec.DecodeError, UnicodeError):
        pass
    found: Numbers = {}
    for key, single, double, plain in _PAIR.findall(text):
        value = single or double or plain
        found[key] = None if value.strip() in ("None", "null") else number(value)
    return found


class Dashed:
    """Reads `key:value - key:value - ...`. The lines of one run mostly have the same keys: those are tried first."""

    def __init__(self) -> None:
        self._prefixes: list[str] = []
        self._scalars = False
        self._keys: tuple[str, ...] = ()

    def read(self, body: str) -> tuple[tuple[str, ...], Sequence[float | None]]:
        """(keys, values), keys all different."""
        parts = body.split(" - ")
        if len(parts) == len(self._prefixes):
            # a part with another key keeps it, and is no number then; JSON's numbers are read faster than float() does
            joined = ",".join(map(str.removeprefix, parts, self._prefixes))
            if self._scalars:
                joined = joined.replace(")", "")
            try:
                return self._keys, _list.decode(f"[{joined}]")
            except (msgspec.DecodeError, UnicodeError):
                pass
            try:
                return self._keys, list(map(float, joined.split(",")))
            except ValueError:
                pass
        return self._learn(parts)

    def _learn(self, parts: list[str]) -> tuple[tuple[str, ...], Sequence[float | None]]:
        found: Numbers = {}
        prefixes = []
        for part in parts:
            key, colon, value = part.rpartition(":")
            if colon and key.strip():
                found[key.strip()] = number(value)
                shell = next((scalar for scalar in _SCALARS if value.startswith(scalar)), "")
                prefixes.append(f"{key}:{shell}")
        keys = tuple(found)
        if len(found) == len(parts) and None not in found.values():
            self._keys, self._prefixes = keys, prefixes
            self._scalars = any(prefix.endswith("(") for prefix in prefixes)
        return keys, list(found.values())


def json_numbers(line: str | bytes) -> Numbers | None:
    """The numbers of one JSON object; None if the line is none. Bare NaN and quoted numbers are understood."""
    try:
        return _fast.decode(line)
    except (msgspec.DecodeError, UnicodeError):
        pass
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    try:
        data = msgspec.json.decode(_BARE.sub(r'"\1"', text))
    except (msgspec.DecodeError, UnicodeError):
        return None
    return flattened(data) if isinstance(data, dict) else None


def flattened(data: Mapping[str, object], prefix: str = "", depth: int = 0) -> Numbers:
    """Nested numbers under slash-joined keys; texts that are numbers count as such, other values are None."""
    found: Numbers = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, (bool, int, float)):
            found[name] = float(value)
        elif isinstance(value, str):
            found[name] = number(value) if len(value) < 64 else None
        elif isinstance(value, Mapping) and depth < 3:
            found.update(flattened(value, f"{name}/", depth + 1))
        else:
            found[name] = None
    return found
