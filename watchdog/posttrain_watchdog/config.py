"""The daemon's YAML configuration as pydantic models.

Promises: a wrong key or value is refused with file, line and what was expected; secrets are never in the file,
only the names of files or environment variables that hold them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator


class ConfigError(ValueError):
    """A configuration that cannot be used. The text is one line a fault: FILE:LINE: what was expected."""


_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdwy]))+")


def seconds(value: Any) -> float:
    """Seconds from a number or a duration as Prometheus writes it ("1m30s")."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and _DURATION.fullmatch(value.strip()):
        parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smhdwy])", value)
        return sum(float(n) * _UNITS[u] for n, u in parts)
    raise ValueError(f"expected a duration such as 15s or 1m30s, got {value!r}")


Duration = Annotated[float, BeforeValidator(seconds), Field(ge=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


LOOPBACK = ("127.0.0.1", "localhost", "::1")


class WebConfig(_Section):
    listen: str = "127.0.0.1:9877"
    """host:port; anything but loopback needs `allow_remote: true`"""
    allow_remote: bool = False
    external_url: str = ""

    @field_validator("listen")
    @classmethod
    def _address(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise ValueError("expected HOST:PORT")
        return value

    @model_validator(mode="after")
    def _stays_at_home(self) -> WebConfig:
        if not self.allow_remote and self.host not in LOOPBACK:
            raise ValueError(f"{self.host} is not a loopback address: set allow_remote: true if others may ask")
        return self

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])


class EngineEndpoint(_Section):
    url: str
    """base URL or the /metrics URL of the engine"""
    name: str = ""
    interval: Duration = 15.0
    timeout: Duration = 5.0


class ImportanceConfig(_Section):
    cap: float = Field(default=10.0, gt=0)
    """upper bound of the importance ratio (the guide's 10.0)"""


class CalibrationConfig(_Section):
    initial_factor: float = 1.0
    decay_steps: float = Field(default=0.0, ge=0)
    """0 keeps the factor constant"""
    correction_freq: int = Field(default=100, gt=0)
    correction_window: int = Field(default=500, gt=0)


class TokenBudget(_Section):
    tokens_per_minute: int = Field(default=50_000_000, gt=0)
    device: str = "auto"
    """auto takes a GPU only where one has memory to spare; cpu or cuda:N force it"""
    gpu_memory_bytes: int = 256 * 2**20


class RunConfig(_Section):
    """One training run: where its files are and what is known of it beforehand."""

    name: str = "run"
    paths: list[str] = Field(default_factory=list)
    """files, folders or globs: logs, dumps, responses; their kind is found by content"""
    journal_units: list[str] = Field(default_factory=list)
    engines: list[EngineEndpoint] = Field(default_factory=list)
    logging_steps: int = Field(default=1, gt=0)
    temperature: float | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class AlertmanagerConfig(_Section):
    url: str
    timeout: Duration = 10.0
    basic_auth_user: str = ""
    password_file: str = ""
    bearer_token_file: str = ""

    @field_validator("url")
    @classmethod
    def _keeps_no_secret(cls, value: str) -> str:
        if "@" in urlsplit(value).netloc:  # it would stand in logs and labels
            raise ValueError("expected a URL without credentials: basic_auth_user and password_file take them")
        return value


class ReceiverConfig(_Section):
    name: str
    kind: str
    """webhook, slack, feishu, dingtalk, wecom, pagerduty or email"""
    url: str = ""
    url_file: str = ""
    url_env: str = ""
    severities: list[str] = Field(default_factory=lambda: ["critical", "warning"])
    options: dict[str, Any] = Field(default_factory=dict)


class AlertingConfig(_Section):
    alertmanagers: list[AlertmanagerConfig] = Field(default_factory=list)
    receivers: list[ReceiverConfig] = Field(default_factory=list)
    external_labels: dict[str, str] = Field(default_factory=dict)
    resend_delay: Duration = 60.0
    language: Literal["en", "zh"] = "en"


class NvmlConfig(_Section):
    enabled: bool = True
    interval: Duration = 1.0


class HostConfig(_Section):
    kernel_log: bool = True
    processes: bool = True
    interval: Duration = 15.0


class SeriesConfig(_Section):
    retention: Duration = 6 * 3600.0
    max_series: int = Field(default=20_000, gt=0)


class Config(_Section):
    """The whole configuration; every part has a default that is right for one node."""

    runs: list[RunConfig] = Field(default_factory=list)
    rules: list[str] = Field(default_factory=list)
    """rule files or globs; empty takes the shipped pack"""
    limits: dict[str, float] = Field(default_factory=dict)
    """overrides of the limits that the shipped rules compare with, served as posttrain_limit{name=...}"""
    evaluation_interval: Duration = 15.0
    poll_interval: Duration = 1.0
    promql_windows: Literal["2.42", "3"] = "2.42"
    state: str = ""
    """SQLite file for what must survive a restart; empty keeps it in $STATE_DIRECTORY, else in memory"""
    web: WebConfig = Field(default_factory=WebConfig)
    importance_sampling: ImportanceConfig = Field(default_factory=ImportanceConfig)
    calibration: CalibrationConfig = Field(default_factory=CalibrationConfig)
    tokens: TokenBudget = Field(default_factory=TokenBudget)
    alerting: AlertingConfig = Field(default_factory=AlertingConfig)
    nvml: NvmlConfig = Field(default_factory=NvmlConfig)
    host: HostConfig = Field(default_factory=HostConfig)
    series: SeriesConfig = Field(default_factory=SeriesConfig)


def _line_of(node: yaml.Node | None, where: tuple[int | str, ...]) -> int:
    """1-based line of the deepest node that the path names."""
    line = 1
    for key in where:
        if node is None:
            break
        line = node.start_mark.line + 1
        child: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for k, v in node.value:
                if k.value == str(key):
                    line, child = k.start_mark.line + 1, v
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            child = node.value[key]
            line = child.start_mark.line + 1
        node = child
    return line


def parse(text: str, origin: str = "<config>") -> Config:
    """Reads a configuration. Raises ConfigError."""
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{origin}:{line}: expected YAML: {getattr(error, 'problem', None) or error}") from None
    except (UnicodeError, ValueError) as error:
        raise ConfigError(f"{origin}:1: expected YAML text: {error}") from None
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(f"{origin}:1: expected a mapping of settings, got {type(data).__name__}")
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        faults = []
        for fault in error.errors():
            where = tuple(fault["loc"])
            name = ".".join(str(w) for w in where) or "the file"
            expected = (
                "no such setting" if fault["type"] == "extra_forbidden" else fault["msg"].removeprefix("Value error, ")
            )
            faults.append(f"{origin}:{_line_of(tree, where)}: {name}: {expected}")
        raise ConfigError("\n".join(faults)) from None


def load(path: Path) -> Config:
    """Reads a configuration file. Raises ConfigError, also where the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}: expected a readable YAML file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}:1: expected YAML text, found bytes that are not UTF-8") from None
    return parse(text, str(path))
