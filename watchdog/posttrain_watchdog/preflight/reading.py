"""Files into documents: YAML, JSON, TOML, requirement lists, shell scripts, dumps of a Python dataclass.

Promises: one bad file is one finding, never an exception; sizes and depths are bounded.
Never constructs objects from what it reads (see document.py).
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import yaml

from posttrain_watchdog.preflight.command_line import commands, from_argv
from posttrain_watchdog.preflight.document import Document, Setting, Value
from posttrain_watchdog.preflight.finding import Finding

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

MAX_BYTES = 4_000_000
MAX_KEYS = 20_000
MAX_DEPTH = 40
_REQUIREMENT = re.compile(r"^\s*([A-Za-z][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*==\s*([0-9][0-9A-Za-z.+!-]*)")
_PYTHON_CALL = re.compile(r"\b(\w*Config|\w*Arguments)\(")


class Unreadable(Exception):
    """The file cannot be understood; carries line and what was expected."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def read(path: Path) -> tuple[list[Document], list[Finding]]:
    """The documents in a file, or the finding that says why there is none."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise Unreadable(f"larger than {MAX_BYTES // 1_000_000} MB: a configuration was expected")
        text = path.read_bytes().decode("utf-8")
        if "\0" in text:
            raise Unreadable("binary: a text file was expected")
        if not text.strip():
            raise Unreadable("empty: a configuration or command line was expected")
        documents = parse(str(path), text)
        for document in documents:
            _inherit(document, path, 0)
        return documents, []
    except OSError as error:
        return [], [_unreadable(path, error.strerror or str(error), 0)]
    except UnicodeDecodeError as error:
        return [], [_unreadable(path, f"not UTF-8 text (byte {error.start})", 0)]
    except (Unreadable, RecursionError) as error:
        return [], [_unreadable(path, str(error) or "nested too deeply", getattr(error, "line", 0))]


def parse(path: str, text: str) -> list[Document]:
    """The documents in a text, by the file's name where it tells, else by content. Raises Unreadable."""
    suffix = Path(path).suffix.lower()
    if suffix == ".toml":
        return [_toml(path, text)]
    if suffix in (".yaml", ".yml", ".json"):
        return _yaml(path, text, "json" if suffix == ".json" else "yaml")
    call = _PYTHON_CALL.search(text)
    if call and suffix in (".py", ".txt", "") and (found := _python(path, text)):
        return found
    found = commands(path, text)
    if found:
        return found
    pinned = _requirements(path, text)
    if pinned.settings:
        return [pinned]
    if suffix in (".txt", "") and re.search(r"^\s*[\w.]+\s*:", text, re.M):
        return _yaml(path, text, "yaml")
    return []


def _inherit(document: Document, path: Path, depth: int) -> None:
    """Settings of the files that a YAML configuration builds on (`defaults:`), where they lie beside it."""
    bases = document.settings.get("defaults")
    if document.syntax != "yaml" or bases is None or not isinstance(bases.value, str) or depth > 8:
        return
    for name in reversed(bases.value.split()):
        base = path.parent / (name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
        if name.startswith("_") or base == path or not base.is_file() or base.stat().st_size > MAX_BYTES:
            continue
        try:
            found = parse(str(base), base.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, Unreadable):
            continue
        for inherited in found:
            _inherit(inherited, base, depth + 1)
            for key, setting in inherited.settings.items():
                document.settings.setdefault(key, Setting(key, setting.value, 0))


def _yaml(path: str, text: str, syntax: str) -> list[Document]:
    try:
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError as error:
        raise Unreadable(f"not {syntax.upper()}: {str(error).splitlines()[0]}") from None
    try:
        node = loader.get_single_node()
        if node is None:
            raise Unreadable("empty: a mapping was expected")
        if isinstance(node, yaml.SequenceNode):
            words = [str(n.value) for n in node.value if isinstance(n, yaml.ScalarNode)]
            found = from_argv(path, words, 1)
            if found is None:
                raise Unreadable("a list: a mapping of settings was expected", 1)
            return [found]
        if not isinstance(node, yaml.MappingNode):
            raise Unreadable("a single value: a mapping of settings was expected", 1)
        document = Document(path, "json" if syntax == "json" else "yaml")
        _flatten(loader, node, "", document, 0)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise Unreadable(
            f"not {syntax.upper()}: {getattr(error, 'problem', error)}", mark.line + 1 if mark else 0
        ) from None
    finally:
        loader.dispose()
    command = _command_in(document, node)
    return [document] if command is None else [command]


def _command_in(document: Document, node: yaml.MappingNode) -> Document | None:
    """A record of a command: {"cmd": [...], "env": {...}}."""
    for key, value in node.value:
        if key.value in ("cmd", "command", "argv") and isinstance(value, yaml.SequenceNode):
            words = [str(n.value) for n in value.value if isinstance(n, yaml.ScalarNode)]
            found = from_argv(document.path, words, key.start_mark.line + 1)
            if found is not None:
                for name, setting in document.settings.items():
                    if name.startswith("env."):
                        found.environment[name[4:]] = setting
            return found
    return None


def _flatten(loader: yaml.SafeLoader, node: yaml.Node, prefix: str, document: Document, depth: int) -> None:
    if depth > MAX_DEPTH or len(document.settings) > MAX_KEYS:
        raise Unreadable(f"more than {MAX_KEYS} keys or {MAX_DEPTH} levels", node.start_mark.line + 1)
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{prefix}.{key.value}" if prefix else str(key.value)
            if isinstance(value, yaml.ScalarNode):
                document.add(name, _scalar_of(loader, value), key.start_mark.line + 1)
            else:
                _flatten(loader, value, name, document, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        scalars = [n for n in node.value if isinstance(n, yaml.ScalarNode)]
        if len(scalars) == len(node.value):
            document.add(prefix, " ".join(str(n.value) for n in scalars), line)
        else:
            for index, item in enumerate(node.value):
                _flatten(loader, item, f"{prefix}[{index}]", document, depth + 1)


def _scalar_of(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Value:
    try:
        value = loader.construct_object(node)
    except (yaml.YAMLError, ValueError, ArithmeticError):
        # a tag that YAML's safe subset does not know, an impossible date, a number of a thousand digits
        return str(node.value)
    return value if isinstance(value, str | int | float | bool) or value is None else str(node.value)


def _toml(path: str, text: str) -> Document:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"line (\d+)", str(error))
        raise Unreadable(f"not TOML: {error}", int(at[1]) if at else 0) from None
    document = Document(path, "toml")
    lines = _toml_lines(text)

    def walk(value: object, prefix: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Unreadable(f"more than {MAX_DEPTH} levels")
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{prefix}.{key}" if prefix else str(key), depth + 1)
        elif isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
            for index, inner in enumerate(value):
                walk(inner, f"{prefix}[{index}]", depth + 1)
        elif isinstance(value, list):
            document.add(prefix, " ".join(map(str, value)), lines.get(prefix, 0))
        else:
            plain = value if isinstance(value, str | int | float | bool) else str(value)
            document.add(prefix, plain, lines.get(re.sub(r"\[\d+\]", "", prefix), 0))

    walk(data, "", 0)
    return document


def _toml_lines(text: str) -> dict[str, int]:
    """Dotted key -> line; tomllib keeps none."""
    table = ""
    lines: dict[str, int] = {}
    for index, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            table = header[1].replace('"', "")
        elif pair := re.match(r"\s*([\w.\"-]+)\s*=", line):
            key = pair[1].replace('"', "")
            lines.setdefault(f"{table}.{key}" if table else key, index)
    return lines


def _requirements(path: str, text: str) -> Document:
    document = Document(path, "requirements")
    for index, line in enumerate(text.splitlines(), 1):
        if pin := _REQUIREMENT.match(line):
            document.add(pin[1].lower().replace("_", "-"), pin[2], index)
    return document


def _python(path: str, text: str) -> list[Document]:
    """Calls such as GRPOConfig(temperature=0.85, ...), in a script or as the dataclass prints itself."""
    documents: list[Document] = []
    for call in _PYTHON_CALL.finditer(text):
        end = _closing(text, call.end() - 1)
        if end is None:
            continue
        first = text.count("\n", 0, call.start())
        try:
            # newlines kept, so that lines can be told; a repr such as <Enum.X: 'x'> is no expression and is dropped
            tree = ast.parse("f" + re.sub(r"<[^<>]*>", "None", text[call.end() - 1 : end + 1]), mode="eval")
        except (SyntaxError, ValueError, RecursionError):
            continue
        document = Document(path, "python", program=call[1], line=first + 1)
        if isinstance(tree.body, ast.Call):
            for word in tree.body.keywords:
                if word.arg is not None:
                    _literal(document, word.arg, word.value, first + word.value.lineno)
        if document.settings:
            documents.append(document)
    return documents


def _literal(document: Document, key: str, node: ast.expr, line: int) -> None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return
    if isinstance(value, dict):
        for inner, item in value.items():
            if isinstance(item, str | int | float | bool) or item is None:
                document.add(f"{key}.{inner}", item, line)
    elif isinstance(value, list | tuple):
        document.add(key, " ".join(map(str, value)), line)
    elif isinstance(value, str | int | float | bool) or value is None:
        document.add(key, value, line)


def _closing(text: str, start: int) -> int | None:
    """Index of the bracket that closes the one at `start`; None where there is none within reach."""
    depth, quote = 0, ""
    for index in range(start, min(len(text), start + 200_000)):
        char = text[index]
        if quote:
            if char == quote and text[index - 1] != "\\":
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                return index
    return None


def _unreadable(path: Path, message: str, line: int) -> Finding:
    return Finding(
        "unreadable", "critical", str(path), line, "", f"cannot be read: {message}", "What it says was not checked."
    )
