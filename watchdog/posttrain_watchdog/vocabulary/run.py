"""Diagnoses, events and progress of the run."""

from __future__ import annotations

from collections.abc import Mapping

from posttrain_watchdog.vocabulary.spec import Spec

METRICS: tuple[Spec, ...] = (
    Spec(
        "posttrain_diagnosis_confidence",
        "Confidence 0..1 that the named cause is at work; absent while it is not suspected",
        labels=("cause",),
    ),
    Spec("posttrain_diagnosis_first_step", "First step at which the cause is in the data", labels=("cause",)),
    Spec("posttrain_events_total", "Things that happened once, by kind", kind="counter", labels=("kind",)),
    Spec(
        "posttrain_event_timestamp_seconds",
        "When the last one of a kind happened",
        "seconds",
        labels=("kind",),
    ),
    Spec("posttrain_run_step", "Last step seen from any source"),
    Spec("posttrain_run_step_timestamp_seconds", "When the last new step was seen", "seconds"),
    Spec("posttrain_run_step_seconds_median", "Median time between the last 20 steps", "seconds"),
    Spec("posttrain_run_seconds_since_step", "Time since the last new step was seen", "seconds"),
    Spec("posttrain_run_finished", "1 once the trainer said that it is done"),
    Spec("posttrain_run_entropy_ratio_to_baseline", "Entropy of the last steps over that of the run's first ones"),
    Spec(
        "posttrain_run_grad_norm_ratio_to_baseline", "Gradient norm of the last steps over that of the run's first ones"
    ),
    Spec(
        "posttrain_run_completion_length_ratio_to_baseline",
        "Mean completion length of the last steps over that of the run's first ones",
    ),
    Spec(
        "posttrain_run_step_seconds_ratio_to_baseline", "Step time of the last steps over that of the run's first ones"
    ),
    Spec("posttrain_limit", "Limits that rules compare with; set in the configuration", labels=("name",)),
    Spec(
        "posttrain_collective_timeout_seconds",
        "Timeout of collective operations, as a log line or a command line says",
        "seconds",
    ),
)

EVENTS: Mapping[str, str] = {
    "run_started": "a trainer began or resumed",
    "run_finished": "the trainer said that it is done",
    "resumed": "the trainer resumed from a checkpoint (label step)",
    "preempted": "the scheduler took the machine away",
    "engine_started": "an engine began (labels: version, logprobs_mode, dtype, ...)",
    "engine_died": "an engine process ended or said that it is dead",
    "engine_request_failed": "the engine answered a request with an error",
    "engine_slept": "the engine gave its memory back",
    "engine_woke": "the engine took its memory again",
    "kv_retraction": "the engine threw running requests out of its cache",
    "weight_sync_started": "an update of the engine's weights began",
    "weights_synced": "an update of the engine's weights ended",
    "logprobs_mode_raw_warning": "a trainer or engine said itself that logprobs are raw",
    "prefix_cache_reset": "the engine dropped its prefix cache",
    "nccl_timeout": "a collective ran into its timeout (labels: rank, op, seq, last_enqueued, last_completed)",
    "nccl_error": "a collective library reported an error",
    "worker_died": "a worker, actor or rank ended unexpectedly",
    "cuda_oom": "a GPU ran out of memory",
    "host_oom": "the kernel or Ray killed a process for memory",
    "cuda_error": "a CUDA error other than out of memory",
    "xid": "the NVIDIA driver reported an Xid (labels: gpu, xid)",
    "gpu_lost": "a GPU fell off the bus or vanished",
    "machine_check": "the kernel reported a hardware error",
    "nvlink_error": "the kernel reported an NVLink or NVSwitch error",
    "pcie_error": "the kernel reported a PCIe error",
    "disk_error": "the kernel reported a disk error",
    "segfault": "a process crashed",
    "nan_loss": "a line said that loss, gradient or logits are not finite",
    "traceback": "an exception ended a process",
    "sampling_exhausted": "dynamic sampling gave up",
    "metrics_dropped": "a tracker said that it dropped data",
    "stale_sample_dropped": "the trainer dropped a sample for staleness",
    "config_changed": "a line said that a setting changed",
    "samples_degenerate": "completions are constant or repeat (labels: what)",
}
"""Closed list of event kinds."""
