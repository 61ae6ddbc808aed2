"""What programs print when they fail, stop, resume or change: one row a sentence, matched at the start of the message.

Promises: every pattern begins at the first character of a message whose prefixes (time, level, Ray, rank, colour) are
already off, so a completion that quotes such a sentence inside a table, a dict or its own text is not taken for it.
Never looks at more than one line; what a traceback adds is gathered in `failure_lines`.
Sentences are those of torch 2.0 to 2.14, Ray 2.x, vLLM, Slurm, transformers, verl and W&B as quoted in public issues.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Pattern:
    """`kind` of vocabulary.EVENTS; `needles`: words of which one stands in every line that can match."""

    kind: str
    needles: tuple[str, ...]
    regex: re.Pattern[str]
    labels: dict[str, str] = field(default_factory=dict)
    """labels that the sentence itself implies; named groups of `regex` are added"""


def _row(kind: str, needles: str, regex: str, **labels: str) -> Pattern:
    return Pattern(kind, tuple(needles.split("|")), re.compile(regex), labels)


PATTERNS: tuple[Pattern, ...] = (
    # collectives: torch names the rank twice, as a prefix of the line and as a prefix of the message
    _row(
        "nccl_timeout",
        "Watchdog caught",
        r"(?:\[Rank (?P<rank>\d+)\]\s+)?Watchdog caught collective operation timeout: WorkNCCL\("
        r"(?:OpType=(?P<op>\w+), )?"
        r"SeqNum=(?P<seq>\d+)(?:, OpType=(?P<op2>\w+))?.*?Timeout\(ms\)=(?P<timeout_ms>\d+)\)"
        r" ran for (?P<ran_ms>\d+) milliseconds",
    ),
    _row(
        "nccl_timeout",
        "last enqueued",
        r"(?:\[PG ID (?P<group>\d+)[^\]]*?(?:Rank (?P<rank>\d+))?\]\s*)?(?:\[Rank (?P<rank2>\d+)\]\s*)?"
        r"(?:failure detected by watchdog at work sequence id: -?\d+ PG status: "
        r"|Exception \(either an error or timeout\) detected by watchdog at work: \d+, "
        r"|Timeout at NCCL work: \d+, )"
        r"last enqueued (?:NCCL )?work: (?P<last_enqueued>-?\d+), last completed (?:NCCL )?work:"
        r" (?P<last_completed>-?\d+)",
    ),
    _row(
        "nccl_timeout",
        "Timed out waiting",
        r"(?:RuntimeError: )?\[\S*gloo/transport/\S+\] Timed out waiting (?P<timeout_ms>\d+)ms for (?P<op>\w+)"
        r" operation",
        library="gloo",
    ),
    _row(
        "nccl_timeout",
        "clients joined",
        r"(?:torch\.distributed\.)?(?:DistStoreError|DistNetworkError|RuntimeError): Timed out after \d+ seconds"
        r" waiting "
        r"for clients\. (?P<joined>\d+)/(?P<world>\d+) clients joined",
        op="rendezvous",
    ),
    _row(
        "nccl_timeout",
        "monitoredBarrier",
        r"(?:RuntimeError: )?(?:\[?Rank (?P<rank>\d+)\]?:? (?:successfully reached monitoredBarrier, but received"
        r" errors while"
        r" waiting (?:for send/recv|to hear) from|timed out in monitoredBarrier after \S+ waiting for) rank"
        r"|Rank (?P<rank2>\d+) timed out in monitoredBarrier.*?Ranks that didn't (?:reach|respond):?)"
        r"\D{0,12}(?P<missing>\d[\d, ]*)",
        op="monitoredBarrier",
    ),
    _row(
        "nccl_error",
        "NCCL error in|DistBackendError|NCCL Error",
        r"(?:torch\.distributed\.)?(?:DistBackendError|RuntimeError)?:?\s*NCCL [eE]rror(?: in)?:?"
        r" ?(?P<where>[^,]{0,120})",
    ),
    _row(
        "nccl_error",
        "Some NCCL operations|process group watchdog|Process group watchdog|watchdog got stuck|entire process down",
        r"(?:\[PG ID [^\]]*\]\s*)?(?:\[Rank (?P<rank>\d+)\]\s*)?(?:Some NCCL operations have failed or timed out"
        r"|To avoid data inconsistency, we are taking the entire process down"
        r"|Process group watchdog thread terminated with exception"
        r"|(?:terminate called.*)?ProcessGroupNCCL's watchdog got stuck for (?P<seconds>\d+) seconds)",
        consequence="true",
    ),
    _row(
        "nccl_error",
        "NCCL WARN",
        r"(?:\S+:\d+:\d+ \[\d+\] )?(?:\S+ )?NCCL WARN (?P<what>(?:Cuda failure|Call to \S+ (?:failed|timed)"
        r"|NET/IB ?: Got (?:async|completion)|Timeout waiting|Connection (?:reset|closed)).{0,160})",
    ),
    _row(
        "nccl_error",
        "onnection closed by peer|onnection reset by peer",
        r"(?:RuntimeError: )?\[\S*gloo/transport/\S+\] (?P<what>Connection (?:closed|reset) by peer.{0,60})",
        library="gloo",
    ),
    _row(
        "nccl_timeout",
        "client socket has timed out|wait timeout after",
        r"(?:torch\.distributed\.)?(?:DistNetworkError|DistStoreError|RuntimeError|TimeoutError)?:? ?"
        r"(?:The client socket has timed out after \d+m?s while trying to connect|wait timeout after"
        r" (?P<timeout_ms>\d+)ms)",
        op="store",
    ),
    # memory
    _row(
        "cuda_oom",
        "out of memory",
        r"(?:torch\.(?:cuda\.)?)?OutOfMemoryError: (?:CUDA|HIP|XPU) out of memory\."
        r"(?: Tried to allocate (?P<size>[\d.]+ [KMGT]iB)\.?| Allocation was preemptively rejected)"
        r"(?:.{0,60}?GPU (?P<gpu>\d+)(?: has a total capacity of (?P<total>[\d.]+ [KMGT]iB) of which "
        r"(?P<free>[\d.]+ [KMGT]iB) is free)?)?",
    ),
    _row(
        "cuda_oom",
        "out of memory",
        r"(?:RuntimeError: |torch\.AcceleratorError: )?(?:CUDA error: out of memory|CUDA out of memory\. Tried to"
        r" allocate "
        r"(?P<size>[\d.]+ [KMGT]iB))",
    ),
    _row(
        "cuda_oom",
        "out of memory|ALLOC_FAILED|memory for the cache blocks|desired GPU memory",
        r"(?:RuntimeError: |ValueError: |torch\.AcceleratorError: )?(?:CUDA (?:driver )?[eE]rror: out of memory"
        r"|Cuda failure (?:2 )?'out of memory'|CUDA error: CUBLAS_STATUS_ALLOC_FAILED"
        r"|(?P<what>No available memory for the cache blocks|Free memory on device .{0,80}less than desired GPU"
        r" memory))",
    ),
    _row(
        "host_oom",
        "memory pressure",
        r"(?:.*?node_manager\.cc:\d+: )?(?P<killed>[1-9]\d*) Workers \(tasks / actors\) killed due to memory pressure"
        r"(?: \(OOM\))?(?:.*?at node \(ID: \S+, IP: (?P<node>[\d.a-fA-F:]+)\))?",
        by="ray",
    ),
    _row(
        "host_oom",
        "OutOfMemoryError",
        r"ray\.exceptions\.OutOfMemoryError: (?P<what>.{0,120})",
        by="ray",
    ),
    _row(
        "host_oom",
        "Memory on the node",
        r"Memory on the node \(IP: (?P<node>[^,)]+)[^)]*\)(?:.*?) was (?P<used>[\d.]+ ?[KMGT]i?B) / "
        r"(?P<total>[\d.]+ ?[KMGT]i?B) \([\d.]+\), which exceeds",
        by="ray",
    ),
    _row(
        "host_oom",
        "oom-kill|oom_kill|OOM Killed|Out Of Memory",
        r"(?:slurmstepd: error: |srun: error: )?(?:\S+: )?(?:Detected \d+ oom[-_]kill event|task \d+: Out Of Memory)",
        by="slurm",
    ),
    # processes
    _row(
        "worker_died",
        "ActorDied|RayActorError|WorkerCrashed|ActorUnavailable",
        r"(?:\S+: )?ray\.exceptions\.(?P<error>ActorDiedError|RayActorError|WorkerCrashedError|ActorUnavailableError):?"
        r" ?(?P<what>.{0,160})",
        by="ray",
    ),
    _row(
        "worker_died",
        "actor died|worker died|exit type",
        r"(?:The actor died unexpectedly before finishing this task|A worker died or was killed while executing a task"
        r"|.{0,80}Worker exit type: SYSTEM_ERROR)",
        by="ray",
    ),
    _row(
        "worker_died",
        "ChildFailedError",
        r"(?:raise )?(?:torch\.distributed\.elastic\.multiprocessing\.errors\.)?ChildFailedError",
        by="torchrun",
    ),
    _row(
        "worker_died",
        "exitcode",
        r"failed \(exitcode: (?P<exitcode>-?\d+)\)\s+local_rank: (?P<local_rank>\d+) \(pid: (?P<pid>\d+)\)",
        by="torchrun",
    ),
    _row("worker_died", "exitcode", r"exitcode\s*: (?P<exitcode>-?[1-9]\d*) \(pid: (?P<pid>\d+)\)", by="torchrun"),
    _row(
        "worker_died",
        "srun: error",
        r"srun: error: (?P<node>\S+): tasks? (?P<rank>[\d,-]+): (?P<what>Killed|Terminated|Aborted|Exited with exit"
        r" code \d+)",
        by="slurm",
    ),
    _row(
        "segfault",
        "egmentation fault|egfault|SIGSEGV",
        r"(?:Fatal Python error: Segmentation fault|!{3,} Segfault encountered !{3,}|\*{3} SIGSEGV received"
        r"|Segmentation fault(?: \(core dumped\))?$|(?:srun: error: \S+: task \d+: )Segmentation fault"
        r"|\[[\w.-]+:\d+\] \*{3} Process received signal|Caught signal 11 \(Segmentation fault)",
    ),
    _row(
        "engine_died",
        "EngineDeadError|Engine core proc|engine core",
        r"(?:vllm\.\S*?)?EngineDeadError: (?P<what>.{0,160})",
    ),
    _row(
        "gpu_lost",
        "device handle for|GPU is lost",
        r"(?:pynvml\.\S+: )?(?:Unable to determine the device handle for (?:GPU|gpu) ?(?P<gpu>[0-9a-fA-F:.]+): "
        r"(?:Unknown Error|GPU is lost)|GPU is lost)",
    ),
    _row(
        "engine_request_failed",
        "eight|update parameter",
        r"(?:Failed to (?:update|sync|load) (?:\w+ ){0,3}(?:parameter|weight)|[Ww]eights? (?:sync|update|transfer)\w* "
        r"(?:failed|error|timed out))",
        reason="weights",
    ),
    _row(
        "cuda_error",
        "CUDA error",
        r"(?:RuntimeError: |torch\.AcceleratorError: )?CUDA error: (?!out of memory)(?P<error>[^\n.]{3,100})",
    ),
    # numbers
    _row(
        "nan_loss",
        "not finite",
        r"(?:WARN(?:ING)?:? )?(?:rank (?P<rank>\d+) )?(?P<what>grad_norm|loss|gradient norm) is not finite",
    ),
    _row(
        "nan_loss",
        "NaN|nan",
        r"(?:.{0,60}?)?(?:[fF]ound NaN in (?P<what>local [\w ]{0,40})|(?P<what2>[lL]oss|[gG]rad(?:ient)? ?norm) is"
        r" (?:nan|NaN|inf)\b"
        r"|NaN or Inf found in (?P<what3>[\w ]{1,40}))",
    ),
    _row(
        "nan_loss",
        "probability tensor contains",
        r"(?:RuntimeError: )?probability tensor contains either `inf`, `nan` or element < 0",
        what="probabilities",
    ),
    # the run's own course
    _row(
        "preempted",
        "PREEMPT|TIME LIMIT|reempted",
        r"(?:slurmstepd: error: )?\*{3} (?:JOB|STEP) (?P<job>\S+) ON (?P<node>\S+) CANCELLED (?:AT \S+ )?DUE TO "
        r"(?P<what>PREEMPTION|TIME LIMIT)",
    ),
    _row(
        "preempted",
        "reempted",
        r"(?:[Tt]his |[Tt]he )?(?:[Nn]ode|[Ii]nstance|[Jj]ob) (?:is being|was|has been) preempted",
    ),
    _row(
        "resumed",
        "esum",
        r"(?:Resum(?:ing|ed)|Resume)(?: training| run)? from (?:the )?(?:\S*checkpoint\S*?[-_/ ]?|\S*global_step_"
        r"|step )"
        r"(?P<step>\d+)?\b",
    ),
    _row(
        "resumed",
        "Continuing training|global step",
        r"(?:Continuing training from global step|Setting global step to) (?P<step>[1-9]\d*)",
    ),
    _row(
        "resumed",
        "loaded checkpoint",
        r"(?:successfully )?loaded checkpoint from .{1,200}?(?:iteration|step) (?P<step>[1-9]\d*)",
    ),
    _row("run_started", "Running training", r"\*{3,} Running training \*{3,}"),
    _row(
        "run_finished",
        "train_runtime|raining|trainer finished|Run summary|Final validation",
        r"(?:\{'train_runtime':|(?:RL|SFT) trainer finished!"
        r"|Training (?:is )?(?:complete[ds]?|finished|done)\b(?!.*(?:step|epoch|batch) \d)"
        r"|wandb: Run summary:|Final validation metrics:)",
    ),
    _row(
        "weights_synced",
        "eight",
        r"(?:[Ww]eights? (?:sync(?:ed|hroni[sz]ed)?|transfer(?:red)?|update[ds]?|refit)(?: \w+){0,3} (?:done"
        r"|complete[d]?|finished"
        r"|in \d|took)|(?:[Ff]inished|[Dd]one|[Cc]ompleted) (?:with )?(?:sync|updat|broadcast|refit|transferr)\w*[ _]"
        r"(?:\w+ ){0,3}weights|(?:sync|update|broadcast|refit)\w*[ _](?:\w+[ _]){0,3}weights\b.{0,40}?"
        r"(?:done|complete|finished|took|succe))(?:.*?step (?P<step>\d+))?",
    ),
    _row(
        "weight_sync_started",
        "eight",
        r"(?:\[?weight[ _]sync\]?:? )?(?:[Ss]tart(?:ing|ed)? (?:to )?)?(?:[Ss]ync(?:ing|hroni[sz]ing)?"
        r"|[Bb]roadcast(?:ing)?"
        r"|[Uu]pdat(?:e|ing)|[Rr]efit(?:ting)?|[Tt]ransferring)[ _](?:(?:the|policy|model|rollout|inference|engine"
        r"|vllm|sglang|new"
        r"|actor)[ _]){0,3}weights?\b(?! (?:decay|version))(?:.*?step (?P<step>\d+))?",
    ),
    _row(
        "sampling_exhausted",
        "num_gen_batches|enerated too many",
        r"(?:ValueError: )?(?:num_gen_batches=(?P<batches>\d+) >= max_num_gen_batches=(?P<limit>\d+)|Generated too"
        r" many)",
    ),
    _row(
        "stale_sample_dropped",
        "tale|staleness|off-policy",
        r"(?:[Dd]ropp(?:ed|ing)|[Dd]iscard(?:ed|ing)|[Cc]ancell?(?:ed|ing)) (?P<count>\d+)? ?(?:old |too )*stale "
        r"(?:rollout|sample|trajector|group|request)",
    ),
    _row(
        "metrics_dropped",
        "wandb",
        r"(?:WARNING:|ERROR:)?wandb\S*: ?(?:WARNING |ERROR )?.{0,80}?(?P<what>Step must only increase|Step \d+ <"
        r" \d+; dropping"
        r"|[Uu]ser provided step: \d+ is less than current step|Tried to log to step \d+ that is less than"
        r"|(?:Fatal|Unrecoverable) error while uploading|[Dd]ropping (?:entry|data|.{0,20}metric)|data will not be"
        r" synced"
        r"|[Rr]ate limit exceeded|[Ss]teps must be monotonically increasing"
        r"|[Nn]etwork error.{0,40}(?:drop|discard))",
    ),
    _row(
        "metrics_dropped",
        "Failed to log|failed to log|ropped",
        r"(?:mlflow|trackio|swanlab|comet|tensorboard)\S*:? .{0,60}?(?:[Ff]ailed to log|[Dd]ropp(?:ed|ing)"
        r" (?P<count>\d+)?)"
        r".{0,40}(?:metric|log|entr|point)",
    ),
    _row(
        "config_changed",
        "changed|hanging",
        r"(?:[Cc]onfig(?:uration)?|[Ss]etting|[Pp]arameter|[Oo]ption|[Ll]ogging|[Ll]oss|[Mm]etric)s?:?"
        r" [`'\"]?(?P<key>[\w./-]{2,60})"
        r"[`'\"]? (?:was |has |been |is )*(?:now )?(?:changed|changing)(?: from [`'\"]?(?P<old>[^\s`'\"]+)[`'\"]?)?"
        r" (?:to|->) "
        r"[`'\"]?(?P<new>[^\s`'\"]+)",
    ),
    _row(
        "engine_request_failed",
        "JSON compliant",
        r"(?:\|\s*)?ValueError: Out of range float values are not JSON compliant(?:: (?P<value>\S+))?",
        reason="logprobs_not_json",
    ),
)
