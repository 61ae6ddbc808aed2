"""Lines as programs print them: what becomes an event, and what must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from posttrain_watchdog.sources.failure_lines import FailureLines, find
from posttrain_watchdog.vocabulary import EVENTS

NCCL = (
    "[rank3]:[E908 02:14:10.003 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=8161, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600004 milliseconds "
    "before"
    " timing out."
)
GIB = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 13.91 GiB. GPU 0 has a total capacity of 79 GiB of"

SAID = {
    NCCL: ("nccl_timeout", {"rank": "3", "seq": "8161", "op": "ALLREDUCE", "timeout_ms": "600000"}),
    "(WorkerDict pid=7) " + NCCL: ("nccl_timeout", {"rank": "3", "actor": "WorkerDict", "pid": "7"}),
    "[PG ID 0 PG GUID 0(default_pg) Rank 0]  failure detected by watchdog at work sequence id: 8112 PG status: last "
    "enqueued work: 8112, last completed work: -1": (
        "nccl_timeout",
        {"rank": "0", "last_enqueued": "8112", "last_completed": "-1"},
    ),
    "[rank1]: [E ProcessGroupNCCL.cpp:1] Exception (either an error or timeout) detected by watchdog at work: 5, "
    "last enqueued NCCL "
    "work: 9, last completed NCCL work: 4.": ("nccl_timeout", {}),
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv "
    "operation to complete": ("nccl_timeout", {"op": "recv", "library": "gloo"}),
    "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined.": (
        "nccl_timeout",
        {"op": "rendezvous", "joined": "3", "world": "4"},
    ),
    "\x1b[36m(WorkerDict pid=30117, ip=10.8.1.4)\x1b[0m " + GIB: (
        "cuda_oom",
        {"size": "13.91 GiB", "gpu": "0", "node": "10.8.1.4"},
    ),
    "[36m(WorkerDict pid=30117)[0m " + GIB: ("cuda_oom", {"pid": "30117"}),
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 3; 79.15 GiB total capacity)": (
        "cuda_oom",
        {"size": "2.00 GiB", "gpu": "3"},
    ),
    "RuntimeError: CUDA error: out of memory": ("cuda_oom", {}),
    "RuntimeError: CUDA error: uncorrectable ECC error encountered": (
        "cuda_error",
        {"error": "uncorrectable ECC error encountered"},
    ),
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.": (
        "worker_died",
        {"by": "ray"},
    ),
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ": ("worker_died", {"by": "torchrun"}),
    "  exitcode  : -9 (pid: 812)": ("worker_died", {"exitcode": "-9", "pid": "812"}),
    "Fatal Python error: Segmentation fault": ("segfault", {}),
    "2026-01-02 03:04:05,678 - verl.workers - WARNING - WARN: rank 2 grad_norm is not finite: nan": (
        "nan_loss",
        {"rank": "2"},
    ),
    "10:17:24 slurmstepd: error: *** JOB 88121 ON n17 CANCELLED DUE TO PREEMPTION ***": ("preempted", {"node": "n17"}),
    "wandb: WARNING Step must only increase in log calls.  Step 5 < 10; dropping {'loss': 1.0}.": (
        "metrics_dropped",
        {},
    ),
    "wandb: WARNING (User provided step: 5 is less than current step: 10. Dropping entry: {'a': 1})": (
        "metrics_dropped",
        {},
    ),
    "\x1b[34m\x1b[1mwandb\x1b[0m: \x1b[33mWARNING\x1b[0m Step must only increase in log calls. Step 5 < 10": (
        "metrics_dropped",
        {},
    ),
    "wandb: WARNING Tried to log to step 9 that is less than the current step 10. Steps must be monotonically "
    "increasing, "
    "so this data will be ignored.": ("metrics_dropped", {}),
    "wandb: WARNING Fatal error while uploading data. Some run data will not be synced, but it will still be "
    "written to "
    "disk.": ("metrics_dropped", {}),
    "RuntimeError: CUDA driver error: out of memory": ("cuda_oom", {}),
    "RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62": ("cuda_oom", {}),
    "ValueError: No available memory for the cache blocks. Try increasing gpu_memory_utilization": ("cuda_oom", {}),
    "torch.distributed.DistNetworkError: The client socket has timed out after 60s while trying to connect to (a, "
    "1).": (
        "nccl_timeout",
        {"op": "store"},
    ),
    "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error": ("gpu_lost", {"gpu": "0000:3B:00.0"}),
    "Failed to update parameter online: size mismatch.": ("engine_request_failed", {"reason": "weights"}),
    "(TaskRunner pid=3) ValueError: num_gen_batches=10 >= max_num_gen_batches=10. Generated too many.": (
        "sampling_exhausted",
        {"batches": "10", "limit": "10"},
    ),
    "[2026-05-24 03:50:00] Dropped 12 stale samples (max staleness 4)": ("stale_sample_dropped", {"count": "12"}),
    "INFO: config loss_agg_mode changed from token-mean to seq-mean": (
        "config_changed",
        {"key": "loss_agg_mode", "new": "seq-mean"},
    ),
    "Weight sync finished in 3.2 s": ("weights_synced", {}),
    "Finished updating policy weights": ("weights_synced", {}),
    "Starting to broadcast weights": ("weight_sync_started", {}),
    "{'train_runtime': '10.3', 'train_loss': 0.1}": ("run_finished", {}),
    "[Wed May  1 10:00:00 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=812, name=python, GPU has fallen off the bus.": (
        "xid",
        {"xid": "79", "gpu": "0000:3b:00"},
    ),
}


@pytest.mark.parametrize("line", SAID)
def test_a_line_that_says_so(line: str) -> None:
    event = find(line)
    kind, labels = SAID[line]
    assert event is not None
    assert event.kind == kind
    assert kind in EVENTS
    assert labels.items() <= event.labels.items()


@pytest.mark.parametrize(("line", "step"), [("Resuming from checkpoint-239", 239), ("sync weights step 1", 1)])
def test_a_step_in_the_line_is_the_events_step(line: str, step: int) -> None:
    event = find(line)
    assert event is not None
    assert event.step == step


NOT_SAID = [
    f"│ how do I fix {GIB} │ 0.5 │",
    f"│ {GIB} │",
    "{'prompt': '" + GIB + "'}",
    '{"completion": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"}',
    "The user says: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=X, Timeout(ms)=1) ran "
    "for 1 ms",
    "I was preempted by the NaN loss",
    "weights are synced every 4 steps",
    "updating weight decay",
    "step:3 - actor/lr:1e-6 - train/num_gen_batches:2.000",
    "num_gen_batches=1. Keep generating...",
    "(EngineCore pid=1) INFO 12-01 08:49:58 [weight_utils.py:1] Time spent loading weights: 0.02 seconds",
    "Training steps: 100",
    "wandb: Tracking run with wandb version 0.17.0",
    "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
    "0 Workers (tasks / actors) killed due to memory pressure (OOM), 1 Workers crashed",
]


@pytest.mark.parametrize("line", NOT_SAID)
def test_a_line_that_only_quotes_it(line: str) -> None:
    assert find(line) is None


def test_a_traceback_is_one_event_with_the_functions_it_passed() -> None:
    ray = "(WorkerDict pid=7, ip=10.8.1.4) "
    lines = [
        ray + "Traceback (most recent call last):",
        ray + '  File "workers/fsdp.py", line 701, in compute_log_prob',
        "(WorkerDict pid=8, ip=10.8.1.4) an ordinary line of another process",
        ray + "    result = run_log_prob(batch)",
        ray + '  File "utils/functional.py", line 150, in entropy_from_logits',
        ray + GIB,
    ]
    reader = FailureLines()
    events = [e for line in lines for e in reader.feed(line)]
    assert [e.kind for e in events] == ["cuda_oom"]
    assert events[0].labels["where"] == "entropy_from_logits"
    assert events[0].labels["stack"] == "compute_log_prob > entropy_from_logits"
    assert list(FailureLines().feed_chunk(("\n".join(lines) + "\n").encode())) == events


def test_an_unknown_exception_is_a_traceback() -> None:
    reader = FailureLines()
    lines = ["Traceback (most recent call last):", '  File "a.py", line 1, in main', "KeyError: 'x'"]
    events = [e for line in lines for e in reader.feed(line)]
    assert [(e.kind, e.labels["exception"], e.labels["where"]) for e in events] == [("traceback", "KeyError", "main")]


def test_a_completion_that_verl_prints_cannot_forge_an_event() -> None:
    reader = FailureLines()
    lines = ["(TaskRunner pid=1) [prompt] why?", "(TaskRunner pid=1) [response] because", GIB, "[ground_truth] 4", GIB]
    assert len([e for line in lines for e in reader.feed(line)]) == 1


def test_no_event_in_a_healthy_recording_but_its_end(recordings: Path) -> None:
    for log in sorted(recordings.glob("healthy*/stdout.log")):
        reader = FailureLines()
        text = log.read_text(encoding="utf-8", errors="replace")
        assert [e.kind for line in text.splitlines() for e in reader.feed(line)] == ["run_finished"]
        assert [e.kind for e in FailureLines().feed_chunk(text.encode())] == ["run_finished"]


@pytest.mark.parametrize(
    "junk", ["- ", "[rank1]: ", "10:00:00 ", "weights sync ", "\x1b[0m", "NaN ", "(a pid=1) ", "wandb: "]
)
def test_a_line_of_megabytes_is_read_in_no_time(junk: str) -> None:
    line = junk * 300_000 + "out of memory"
    event = find(line)
    assert event is None or len(event.text) <= 2000


def test_every_kind_is_in_the_closed_list() -> None:
    from posttrain_watchdog.sources.failure_patterns import PATTERNS

    assert {p.kind for p in PATTERNS} <= set(EVENTS)
