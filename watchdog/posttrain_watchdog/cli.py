"""The commands, and nothing else."""

from __future__ import annotations

import sys
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
        result = replay_runs(paths, settings, RuleSet.load(rule_files(rules)))
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
    from posttrain_watchdog.config import Config, ConfigError, load
    from posttrain_watchdog.daemon import Daemon, rule_paths

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        settings = load(config) if config else Config()
        daemon = Daemon(settings, rule_paths(settings))
        asyncio.run(daemon.serve())
    except (ConfigError, RuleError, OSError) as error:
        raise _refuse(str(error)) from None


def main() -> None:
    """Entry point of the command `posttrain-watchdog`."""
    app()
