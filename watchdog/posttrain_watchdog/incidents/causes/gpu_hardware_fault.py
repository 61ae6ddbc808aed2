"""ECC, Xid, NVLink or bus errors: which GPU, and what the vendor says to do.

Guards: Xid codes that programs cause themselves (13, 31, 43) or that only follow another error (45) name no hardware;
the first fault in time is the subject.
"""

from __future__ import annotations

from posttrain_watchdog.incidents.finding import STATED, STRONG, SUPPORT, Finding
from posttrain_watchdog.incidents.history import History
from posttrain_watchdog.model import Event

_ODDS = {"yes": STATED, "maybe": STRONG}
_CUDA = ("ECC", "no CUDA-capable device", "hardware", "NVLink", "fell off", "system not yet initialized")


def judge(history: History) -> Finding | None:
    faults: list[tuple[float, Event]] = []
    for event in history.events("xid", "gpu_lost", "cuda_error", "nvlink_error", "pcie_error"):
        odds = _odds(event)
        if odds > 1:
            faults.append((odds, event))
    witnesses: dict[str, float] = {}
    evidence: dict[str, float | str] = {}
    gpus = _counters(history, witnesses, evidence)
    if not faults and not witnesses:
        return None
    action = "drain the node and run dcgmi diag -r 3"
    step: int | None = None
    if faults:
        faults.sort(key=lambda f: (f[1].time is None, f[1].time or 0.0))
        strongest = max(faults, key=lambda f: f[0])
        witnesses[f"{strongest[1].kind} {strongest[1].labels.get('xid', '')}".strip()] = strongest[0]
        if len({(e.kind, e.labels.get("xid")) for _, e in faults}) > 1:
            witnesses["several kinds of errors"] = SUPPORT
        first = faults[0][1]
        step = first.step
        gpus = [g for _, e in faults if (g := e.labels.get("gpu") or e.labels.get("device", ""))] + gpus
        evidence["first"] = first.text[:200]
        evidence["events"] = float(len(faults))
        action = strongest[1].labels.get("action", action)
        if "meaning" in strongest[1].labels:
            evidence["meaning"] = f"Xid {strongest[1].labels['xid']}: {strongest[1].labels['meaning']}"
    secondary = [e.labels["xid"] for e in history.events("xid") if _odds(e) <= 1 and "xid" in e.labels]
    if secondary:
        evidence["Xid that name no hardware"] = ", ".join(sorted(set(secondary)))
    gpu = gpus[0] if gpus else ""
    return Finding(
        summary=f"GPU {gpu or 'unknown'}: {evidence.get('meaning', evidence.get('first', 'hardware errors counted'))}",
        witnesses=witnesses,
        evidence=evidence,
        first_checks=(
            f"which GPU first ({gpu or 'see the first line'}), and that node's kernel log at that second",
            action,
            "row remapping and ECC counters (nvidia-smi -q), then a reset or the vendor",
        ),
        first_step=step,
        labels={"gpu": gpu},
    )


def _odds(event: Event) -> float:
    labels = event.labels
    if event.kind == "xid":
        return _ODDS.get(labels.get("fault", "maybe"), 0.0)
    if event.kind == "gpu_lost":
        return STATED
    if event.kind == "cuda_error":
        return STATED if any(word in event.text for word in _CUDA) else 0.0
    if event.kind == "nvlink_error":
        return STRONG
    return STRONG if labels.get("severity") != "corrected" and "nvidia" in event.text.lower() else 0.0


def _counters(history: History, witnesses: dict[str, float], evidence: dict[str, float | str]) -> list[str]:
    """What NVML counts; the GPUs that it names."""
    gpus = []
    for name, what, odds in (
        ("posttrain_gpu_remap_failed", "a memory row could not be remapped", STATED),
        ("posttrain_gpu_remap_pending", "a row remapping waits for a reset", STRONG),
        ("posttrain_gpu_pages_pending_retirement", "memory pages wait to be retired", STRONG),
    ):
        for labels, track in history.tracks(name):
            if track.last > 0:
                witnesses[what] = odds
                gpus.append(dict(labels).get("gpu", ""))
                evidence[what] = f"GPU {gpus[-1]}"
    for labels, track in history.tracks("posttrain_gpu_ecc_errors_total"):
        told = dict(labels)
        read = track.finite()[1]
        if told.get("type") == "uncorrected" and len(read) >= 2 and read[-1] > read[0]:
            witnesses["uncorrected ECC errors counted"] = STATED
            gpus.append(told.get("gpu", ""))
            evidence["uncorrected ECC errors"] = float(read[-1] - read[0])
    for labels, track in history.tracks("posttrain_gpu_up"):
        read = track.finite()[1]
        if len(read) >= 2 and read[-1] == 0 and read.max() == 1:
            witnesses["a GPU no longer answers"] = STATED
            gpus.append(dict(labels).get("gpu", ""))
            evidence["lost"] = f"GPU {gpus[-1]}"
    return gpus
