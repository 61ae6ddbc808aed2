"""Command lines into documents: shell scripts, process lists, argument vectors.

Promises: splits words as a POSIX shell does and runs nothing; variables stay as they are written.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from posttrain_watchdog.preflight.document import Document, Setting, scalar

_TELLS = re.compile(
    r"vllm serve|vllm\.entrypoints|sglang\.launch_server|sglang serve|\btrl (?:grpo|rloo|vllm-serve)|verl\.|main_ppo|"
    r"swift (?:rlhf|rollout)|megatron rlhf|llamafactory|openrlhf|run_grpo|nemo_rl|prime_rl|--rollout[-_.]|--use-tis|"
    r"--use-rollout|--use-routing|--hf-checkpoint|--vllm_|--rlhf_type|--use_vllm|grpo"
)
_ASSIGNMENT = re.compile(r"^([A-Z][A-Z0-9_]*)=(.*)$", re.S)
_OPENS = re.compile(r"^\s*[A-Za-z_]\w*\+?=\(")
_VARIABLE = re.compile(r"^\s*(?:export\s+|local\s+)?([A-Za-z_]\w*)=(.*)$")
_USE = re.compile(r"\"?\$\{(\w+)\[[@*]\]\}\"?|\$\{(\w+)(?::-([^{}]*))?\}|\$(\w+)")
_HYDRA = re.compile(r"^[+~]{0,2}([A-Za-z_][\w/-]*(?:\.[\w/-]+)*)=(.*)$", re.S)
_PROGRAM = re.compile(r"(?:^|/)(?:vllm|sglang|trl|swift|megatron|llamafactory-cli|llamafactory|accelerate|deepspeed|"
                      r"torchrun|python[\d.]*|uv|rl|env|nohup|srun|ray|numactl|[\w./-]+\.py)$")  # fmt: skip
MAX_LINES = 20_000
MAX_LINE = 200_000


def commands(path: str, text: str) -> list[Document]:
    """The commands of a script or process list that preflight may know something about.

    Arrays of arguments (`ARGS=( ... )`, then `${ARGS[@]}`) and plain variables are put in where they are used.
    """
    documents: list[Document] = []
    environment: dict[str, Setting] = {}
    variables: dict[str, str] = {}
    for line, physical in _logical_lines(text):
        joined = " ".join(p.rstrip("\\") for p in physical)
        if (array := re.match(r"^\s*([A-Za-z_]\w*)\+?=\((.*?)\)?\s*$", joined, re.S)) is not None:
            variables[array[1]] = " ".join(filter(None, (variables.get(array[1], ""), array[2])))
            continue
        if (found := _VARIABLE.match(joined)) is not None and "$(" not in found[2] and not _TELLS.search(joined):
            value = _unquoted(found[2])
            variables[found[1]] = value
            if found[1].isupper():
                environment[found[1]] = Setting(found[1], scalar(value), line)
            continue
        whole = _expanded(joined, variables)
        if not _TELLS.search(whole):
            continue
        document = from_argv(path, _words(whole), line, physical)
        if document is not None:
            _locate(document, text)
            document.environment = {**environment, **document.environment}
            documents.append(document)
    return documents


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def _unquoted(value: str) -> str:
    words = _words(value)
    return words[0] if len(words) == 1 else value.strip()


def _expanded(line: str, variables: dict[str, str], depth: int = 0) -> str:
    """The line with what is known of its variables put in; what is not known stays as it is written."""

    def put(use: re.Match[str]) -> str:
        name = use[1] or use[2] or use[4]
        known = variables.get(name)
        if known is None:
            return use[3] if use[3] is not None else use[0]
        return known

    wide = _USE.sub(put, line)
    if wide == line or depth > 5 or len(wide) > MAX_LINE:
        return line if len(wide) > MAX_LINE else wide
    return _expanded(wide, variables, depth + 1)


def _locate(document: Document, text: str) -> None:
    """Lines of options that came in through a variable: where the flag stands in the text."""
    lines = text.splitlines()[:MAX_LINES]
    for key, setting in document.settings.items():
        spelt = (f"--{key.replace('_', '-')}", f"--{key}", f"{key}=")
        if setting.line and any(s in lines[setting.line - 1] for s in spelt):
            continue
        at = next((n for n, raw in enumerate(lines, 1) if any(s in raw for s in spelt)), setting.line)
        document.settings[key] = Setting(key, setting.value, at, setting.given)


def from_argv(path: str, words: Sequence[str], line: int, physical: Sequence[str] = ()) -> Document | None:
    """One command as a document; None if there is no program and no option in it."""
    document = Document(path, "flags", line=line)
    start = next((i for i, w in enumerate(words) if _PROGRAM.search(w)), None)
    if start is None:
        start = next((i for i, w in enumerate(words) if w.startswith("--")), None)
        if start is None:
            return None
    for word in words[:start]:
        if found := _ASSIGNMENT.match(word):
            document.environment[found[1]] = Setting(found[1], scalar(found[2]), _line_of(word, line, physical))
    program: list[str] = []
    index = start
    while index < len(words):
        word = words[index]
        index += 1
        at = _line_of(word, line, physical)
        if word.startswith("--") and len(word) > 2:
            index = _option(document, words, index, at)
        elif found := _HYDRA.match(word):
            document.syntax = "hydra"
            document.add(found[1], scalar(found[2]), at)
        elif re.fullmatch(r"-[A-Za-z]\w*", word) and program and word != "-m":
            document.add(word[1:], scalar(words[index]) if index < len(words) else True, at)
            index += 1
        elif word in ("&", "|", ">", "2>&1", ";", "&&"):
            break
        else:
            program.append(word)
    document.program = " ".join(program)
    return document if document.settings or program else None


def _option(document: Document, words: Sequence[str], index: int, line: int) -> int:
    """Adds the option before `index`; returns the index after its values."""
    name, equals, value = words[index - 1][2:].partition("=")
    if equals:
        document.add(_key(name), scalar(value), line)
        return index
    values: list[str] = []
    while index < len(words) and not words[index].startswith("--") and not _HYDRA.match(words[index]):
        if re.fullmatch(r"-[A-Za-z]\w*", words[index]) or words[index] in ("&", "|", ">", "2>&1", ";", "&&"):
            break
        values.append(words[index])
        index += 1
    if values:
        document.add(_key(name), scalar(values[0]) if len(values) == 1 else " ".join(values), line)
    elif name.startswith("no-"):
        document.add(_key(name[3:]), False, line)
    else:
        document.add(_key(name), True, line)
    return index


def _key(name: str) -> str:
    return name.replace("-", "_")


def _line_of(word: str, line: int, physical: Sequence[str]) -> int:
    for offset, text in enumerate(physical):
        if word in text:
            return line + offset
    return line


def _logical_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Lines joined at a trailing backslash, or until an array closes, with the number of their first line."""
    held: list[str] = []
    first = 0
    in_array = False
    for number, raw in enumerate(text.splitlines()[:MAX_LINES], 1):
        if not held:
            first = number
            in_array = bool(_OPENS.match(raw)) and not raw.rstrip().endswith(")")
        line = raw.rstrip()
        held.append(re.sub(r"(?:^|\s)#.*$", "", line) if in_array else line)
        if in_array and not line.endswith(")"):
            continue
        if in_array or not line.endswith("\\"):
            yield first, held
            held, in_array = [], False
    if held:
        yield first, held
