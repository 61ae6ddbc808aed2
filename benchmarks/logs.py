"""From a trainer's log to stored series, all keys: this reader beside mtail on the same files in the same run.

`python benchmarks/logs.py [--lines N] [--repeat K]` prints a table. Ours reads the file in blocks, tells the dialect by
content, turns every line into a row and stores it with its step windows (series/live.py). mtail gets a program that
takes 10 of the keys by regular expressions, which is as much as people write; its own start is measured on an empty
file and taken off. Both are counted in processor seconds, because mtail uses several threads and a shared machine's
clock says little. Without mtail its columns stay empty.
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from posttrain_watchdog.model import Row
from posttrain_watchdog.series.live import LiveSeries
from posttrain_watchdog.sources.detection import Follower

BLOCK = 256 << 10
_TRL = (
    "loss grad_norm learning_rate num_tokens completions/mean_length completions/min_length "
    "completions/max_length completions/clipped_ratio completions/mean_terminated_length "
    "completions/min_terminated_length completions/max_terminated_length tools/call_frequency "
    "tools/failure_frequency rewards/accuracy/mean rewards/accuracy/std reward reward_std frac_reward_zero_std "
    "sampling/sampling_logp_difference/mean sampling/sampling_logp_difference/max "
    "sampling/importance_sampling_ratio/min sampling/importance_sampling_ratio/mean "
    "sampling/importance_sampling_ratio/max kl entropy clip_ratio/low_mean clip_ratio/low_min "
    "clip_ratio/high_mean clip_ratio/high_max clip_ratio/region_mean step_time epoch"
)
TRL_KEYS = _TRL.split()
_VERL = (
    "actor/entropy actor/pg_loss actor/pg_clipfrac actor/ppo_kl actor/pg_clipfrac_lower actor/kl_loss "
    "actor/kl_coef actor/grad_norm actor/lr critic/score/mean critic/score/max critic/score/min "
    "critic/rewards/mean critic/rewards/max critic/rewards/min critic/advantages/mean critic/advantages/max "
    "critic/advantages/min critic/returns/mean critic/returns/max critic/returns/min response_length/mean "
    "response_length/max response_length/min response_length/clip_ratio prompt_length/mean prompt_length/max "
    "prompt_length/min prompt_length/clip_ratio num_turns/min num_turns/max num_turns/mean timing_s/gen "
    "timing_s/reward timing_s/old_log_prob timing_s/ref timing_s/adv timing_s/update_actor "
    "timing_s/update_weights timing_s/step timing_per_token_ms/gen timing_per_token_ms/adv "
    "timing_per_token_ms/update_actor perf/total_num_tokens perf/time_per_step perf/throughput perf/mfu/actor "
    "global_seqlen/min global_seqlen/max global_seqlen/mean training/global_step training/epoch "
    "training/rollout_probs_diff_max training/rollout_probs_diff_mean training/rollout_probs_diff_std "
    "training/rollout_actor_probs_pearson_corr rollout_corr/kl rollout_corr/k3_kl rollout_corr/training_ppl "
    "rollout_corr/rollout_is_mean"
)
VERL_KEYS = _VERL.split()
MTAIL_KEYS = {
    "trl": TRL_KEYS[:4] + TRL_KEYS[15:18] + TRL_KEYS[21:22] + TRL_KEYS[24:25] + TRL_KEYS[30:31],
    "verl": VERL_KEYS[:4] + VERL_KEYS[7:10] + VERL_KEYS[21:22] + VERL_KEYS[32:33] + VERL_KEYS[56:57],
}
MTAIL_KEYS["jsonl"] = MTAIL_KEYS["trl"]


def trl_line(step: int, rng: random.Random) -> str:
    """transformers 5: floats as quoted strings of four digits."""
    body = (f"'{key}': '{rng.random() * 3 if key != 'epoch' else step * 1e-4:.4g}'" for key in TRL_KEYS)
    return "{" + ", ".join(body) + "}"


def verl_line(step: int, rng: random.Random) -> str:
    """Full precision, every tenth a numpy scalar, Ray's prefix in front."""
    parts = [
        f"{key}:np.float64({rng.random()})" if place % 10 == 7 else f"{key}:{rng.random()}"
        for place, key in enumerate(VERL_KEYS)
    ]
    return f"(TaskRunner pid=12345) step:{step} - " + " - ".join(parts)


def jsonl_line(step: int, rng: random.Random) -> str:
    """A tracker's export, eight digits."""
    body = (f'"{key}": {rng.random() * 3:.8f}' for key in TRL_KEYS)
    return f'{{"step": {step}, ' + ", ".join(body) + "}"


def mtail_program(kind: str) -> str:
    """One gauge and one pattern a key, as mtail's own examples have it."""
    number = r"(?P<v>-?[0-9.]+(?:e[-+]?[0-9]+)?)"
    lines = []
    for place, key in enumerate(MTAIL_KEYS[kind]):
        head = {"trl": rf"'{key}': '", "verl": rf" {key}:(?:np\.float64\()?", "jsonl": rf'"{key}": '}[kind]
        pattern = head.replace("/", r"\/")
        lines.append(f"gauge g{place}\n/{pattern}{number}/ {{\n  g{place} = float($v)\n}}\n")
    return "".join(lines)


def ours(path: Path) -> tuple[int, int]:
    """(rows, series) of a file, read, recognised and stored."""
    follower, live, rows = Follower(), LiveSeries(), 0
    with path.open("rb") as file:
        rest = b""
        while block := file.read(BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                for item in follower.feed(line.decode("utf-8", "replace")):
                    if isinstance(item, Row):
                        live.add(item)
                        rows += 1
            live.settle()
    return rows, len(live.last())


def cpu_of(work: Callable[[], object], who: int) -> float:
    before = resource.getrusage(who)
    work()
    after = resource.getrusage(who)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def mtail(program: Path, log: Path) -> float:
    command = ["mtail", "--one_shot", "--progs", str(program), "--logs", str(log), "--logtostderr=false"]
    return cpu_of(
        lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
        resource.RUSAGE_CHILDREN,
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--lines", type=int, default=40_000)
    arguments.add_argument("--repeat", type=int, default=3)
    options = arguments.parse_args()
    print(f"{'log':8}{'keys':>6}{'ours lines/s':>14}{'mtail lines/s':>15}{'mtail keys':>12}{'factor':>8}")
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "empty.log"
        empty.write_text("")
        for kind, make in (("trl", trl_line), ("verl", verl_line), ("jsonl", jsonl_line)):
            rng = random.Random(1)
            log = Path(folder) / f"{kind}.log"
            log.write_text("".join(make(step, rng) + "\n" for step in range(1, options.lines + 1)))
            seconds = []
            for _ in range(options.repeat):
                begun = time.process_time()
                rows, series = ours(log)
                seconds.append(time.process_time() - begun)
                assert rows == options.lines, (kind, rows)
            mine = options.lines / min(seconds)
            row = f"{kind:8}{series:>6}{mine:>14,.0f}"
            if shutil.which("mtail"):
                program = Path(folder) / f"{kind}.mtail"
                program.write_text(mtail_program(kind))
                start = min(mtail(program, empty) for _ in range(options.repeat))
                theirs = options.lines / max(min(mtail(program, log) for _ in range(options.repeat)) - start, 1e-9)
                row += f"{theirs:>15,.0f}{len(MTAIL_KEYS[kind]):>12}{mine / theirs:>8.1f}"
            print(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
