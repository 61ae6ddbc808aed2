"""The commands, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import orjson
import typer

from posttrain_watchdog import __version__

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)

UNUSABLE = 2
"""Exit code for input that cannot be used at all."""

Paths = Annotated[list[Path], typer.Argument(help="files or folders; their kind is found by their content")]
Format = Annotated[str, typer.Option("--format", help="text or json")]


def _refuse(text: str) -> typer.Exit:
    """Says why on stderr and gives the exit to raise."""
    print(f"posttrain-watchdog: {text}", file=sys.stderr)
    return typer.Exit(UNUSABLE)


def _print_json(data: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n")


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None] | None]:
    """A bar on a terminal's stderr, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)


def _version(asked: bool) -> None:
    if asked:
        print(f"posttrain-watchdog {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None:
    """Watches RL post-training runs and names the root cause when trainer and engine disagree."""


@app.command()
def replay(
    paths: Paths,
    rules: Annotated[Path | None, typer.Option(help="folder of rule files instead of the shipped ones")] = None,
    form: Format = "text",
    report: Annotated[Path | None, typer.Option(help="write an HTML report")] = None,
    fail_on: Annotated[str | None, typer.Option(help="exit 1 from this severity on: info, warning, critical")] = None,
    config: Annotated[Path | None, typer.Option("-c", "--config")] = None,
) -> None:
    """Runs the whole pipeline over finished logs and dumps."""
    from posttrain_watchdog import report as reports
    from posttrain_watchdog.alerting.rules import RuleError, RuleSet
    from posttrain_watchdog.config import Config, ConfigError, load
    from posttrain_watchdog.replay import SEVERITIES, NothingUsable
    from posttrain_watchdog.replay import replay as replay_runs
    from posttrain_watchdog.shipped import rule_files

    if fail_on is not None and fail_on not in SEVERITIES:
        raise _refuse(f"--fail-on: expected one of {', '.join(SEVERITIES)}, got {fail_on!r}")
    if form not in ("text", "json"):
        raise _refuse(f"--format: expected text or json, got {form!r}")
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise _refuse(f"no such file or folder: {', '.join(missing)}")
    try:
        settings = load(config) if config else Config()
        with _progress() as progress:
            result = replay_runs(paths, settings, RuleSet.load(rule_files(rules)), progress=progress)
    except (ConfigError, RuleError, NothingUsable) as error:
        raise _refuse(str(error)) from None
    if form == "json":
        _print_json(result.as_dict())
    else:
        print(reports.text(result), end="")
    if report is not None:
        report.write_text(reports.html(result), encoding="utf-8")
    worst = result.worst()
    if fail_on is not None and worst is not None and SEVERITIES.index(worst) >= SEVERITIES.index(fail_on):
        raise typer.Exit(1)


@app.command()
def demo(
    speed: Annotated[float, typer.Option(min=0.01, help="times four steps a second")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="end when the recordings do")] = False,
    listen: Annotated[str, typer.Option(help="HOST:PORT of the status page")] = "127.0.0.1:9877",
) -> None:
    """Follows two bundled real recordings: a healthy run, and one that goes wrong."""
    import asyncio

    from posttrain_watchdog.config import ConfigError
    from posttrain_watchdog.demo import demo as perform

    try:
        found = asyncio.run(perform(speed=speed, once=once, listen=listen, say=lambda text: print(text, flush=True)))
    except (ConfigError, ValueError, OSError) as error:
        raise _refuse(str(error)) from None
    for name, diagnoses in found.items():
        causes = [d.cause for d in diagnoses if d.confidence >= 0.5 and d.cause != "healthy"]
        print(f"run {name}: {causes[0] if causes else 'nothing wrong found'}")


@app.command()
def run(
    config: Annotated[Path | None, typer.Option("-c", "--config", help="YAML; without one, discovers")] = None,
) -> None:
    """The daemon."""
    import asyncio
    import logging

    from posttrain_watchdog.alerting.rules import RuleError
    from posttrain_watchdog.alerting.transport import ReceiverError
    from posttrain_watchdog.config import Config, ConfigError, load
    from posttrain_watchdog.daemon import Daemon
    from posttrain_watchdog.rulebook import rule_paths

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        settings = load(config) if config else Config()
        daemon = Daemon(settings, rule_paths(settings))
        asyncio.run(daemon.serve())
    except (ConfigError, RuleError, ReceiverError, ValueError, OSError) as error:
        raise _refuse(str(error)) from None


@app.command()
def diagnose(
    dumps: Paths,
    form: Format = "text",
) -> None:
    """The token statistics and the named cause alone."""
    from posttrain_watchdog import diagnose as tokens

    if form not in ("text", "json"):
        raise _refuse(f"--format: expected text or json, got {form!r}")
    try:
        found = tokens.diagnose(dumps)
    except tokens.NoTokens as error:
        raise _refuse(str(error)) from None
    if form == "json":
        _print_json(found.as_dict())
    else:
        print(found.text(), end="")


@app.command()
def verify(
    paths: Annotated[list[Path] | None, typer.Argument(help="logs, dumps and configurations of the run")] = None,
    live: Annotated[str | None, typer.Option(help="URL of a running daemon instead of files")] = None,
    form: Annotated[str, typer.Option("--format", help="text, json, junit or html")] = "text",
) -> None:
    """The go-live checklist: value, limit, sample size; exit 0 only if every line passes."""
    from posttrain_watchdog.checklist import Unreachable, from_daemon, from_files
    from posttrain_watchdog.preflight import verify_render as render
    from posttrain_watchdog.preflight.verify import exit_code
    from posttrain_watchdog.preflight.verify import verify as judge

    shapes = {"text": render.as_text, "json": render.as_json, "junit": render.as_junit, "html": render.as_html}
    if form not in shapes:
        raise _refuse(f"--format: expected one of {', '.join(shapes)}, got {form!r}")
    if bool(paths) == bool(live):
        raise _refuse("expected either files or --live URL")
    missing = [str(path) for path in paths or [] if not path.exists()]
    if missing:
        raise _refuse(f"no such file or folder: {', '.join(missing)}")
    try:
        measured = from_daemon(live) if live else from_files(paths or [])
    except (Unreachable, ValueError) as error:
        raise _refuse(str(error)) from None
    lines = judge(measured)
    print(shapes[form](lines))
    raise typer.Exit(exit_code(lines))


@app.command()
def check(
    files: Paths,
    form: Annotated[str, typer.Option("--format", help="text, json or sarif")] = "text",
) -> None:
    """Preflight of trainer configurations, engine command lines, rule files and the daemon's own configuration."""
    from posttrain_watchdog.preflight import render
    from posttrain_watchdog.preflight_files import check_files

    missing = [str(path) for path in files if not path.exists()]
    if missing:
        raise _refuse(f"no such file or folder: {', '.join(missing)}")
    findings = check_files(files)
    if form == "sarif":
        print(render.as_sarif(findings, __version__))
    elif form == "json":
        print(render.as_json(findings))
    elif form == "text":
        print(render.as_text(findings))
    else:
        raise _refuse(f"--format: expected text, json or sarif, got {form!r}")
    if any(finding.severity == "critical" for finding in findings):
        raise typer.Exit(1)


@app.command()
def discover() -> None:
    """What would be watched on this host without a configuration."""
    from posttrain_watchdog.discovery import look, report

    print(report(look()[0]), end="")


rules_app = typer.Typer(no_args_is_help=True, help="Rule files: check them, test them.")
app.add_typer(rules_app, name="rules")


@rules_app.command("test")
def rules_test(files: Paths) -> None:
    """Runs rule unit tests in promtool's format, without Prometheus."""
    from posttrain_watchdog.alerting.unit_tests import run as run_tests

    report = run_tests(files)
    print(report.text(), end="")
    if not report.ok:
        raise typer.Exit(1)


@rules_app.command("check")
def rules_check(files: Paths) -> None:
    """Everything promtool check rules says, and metrics and labels that nothing here exposes."""
    from posttrain_watchdog.alerting.check import check as check_rules

    findings, count = check_rules(files)
    for finding in findings:
        print(finding)
    print(f"{count} rules in {len(files)} files, {len(findings)} findings")
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(1)


def main() -> None:
    """Entry point of the command `posttrain-watchdog`."""
    app()
