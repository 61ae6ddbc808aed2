"""What inference engines say of themselves, under one name whatever the engine and its version."""

from __future__ import annotations

from posttrain_watchdog.vocabulary.spec import Spec

PREFIX = "posttrain_engine_"
_ENGINE = ("engine", "replica", "source")
"""`engine`: index within one server (vLLM's engine, SGLang's data-parallel rank); `replica`: a worker behind Ray"""


def _gauge(short: str, text: str, unit: str = "", labels: tuple[str, ...] = ()) -> Spec:
    return Spec(PREFIX + short, text, unit, labels=(*_ENGINE, *labels))


def _counter(short: str, text: str, unit: str = "", labels: tuple[str, ...] = ()) -> Spec:
    return Spec(PREFIX + short, text, unit, "counter", (*_ENGINE, *labels))


def _histogram(short: str, text: str, unit: str = "seconds") -> Spec:
    return Spec(PREFIX + short, text, unit, "histogram", _ENGINE)


METRICS: tuple[Spec, ...] = (
    _gauge(
        "seconds_per_token",
        "Mean time between two generated tokens of a request, since the last reading; NaN while nothing is generated",
        "seconds",
    ),
    _gauge("tokens_per_second", "Tokens generated per second, all requests, since the last reading", "tokens"),
    _gauge("requests_running", "Requests in the running batch"),
    _gauge("requests_waiting", "Requests that wait for room in the batch"),
    _gauge("requests_paused", "Requests held while weights are updated"),
    _gauge("kv_cache_usage_ratio", "Share of the KV cache in use"),
    _gauge("prefix_cache_hit_ratio", "Share of prompt tokens found in the prefix cache, as the engine's log says"),
    _gauge("generation_tokens_per_second", "Generated tokens per second, as the engine itself says", "tokens"),
    _gauge("prompt_tokens_per_second", "Prompt tokens per second, as the engine itself says", "tokens"),
    _gauge("awake", "1 while the engine holds its memory, 0 while it sleeps"),
    _gauge("weight_updates_in_flight", "Updates of the weights that have begun and not ended"),
    _counter("generation_tokens_total", "Tokens generated", "tokens"),
    _counter("prompt_tokens_total", "Prompt tokens processed", "tokens"),
    _counter("cached_tokens_total", "Prompt tokens taken from the prefix cache", "tokens"),
    _counter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache", "tokens"),
    _counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache", "tokens"),
    _counter("preemptions_total", "Requests thrown out of the batch for lack of cache (preempted or retracted)"),
    _counter("corrupted_requests_total", "Requests with NaN in their logits"),
    _counter("requests_finished_total", "Requests that ended, by reason", labels=("finished_reason",)),
    _counter("requests_aborted_total", "Requests that were aborted"),
    _counter("requests_total", "Requests for generation, by HTTP status, as the access log has them", labels=("code",)),
    _counter("responses_total", "Answers read from a file of requests and responses, by HTTP status", labels=("code",)),
    _counter(
        "response_faults_total",
        "Answers whose logprobs cannot be used: missing, null, wrong_length, no_prompt_logprobs, not_finite",
        labels=("fault",),
    ),
    _counter("response_tokens_total", "Generated tokens read from a file of responses", "tokens"),
    _gauge(
        "sampling_temperature_over_reported",
        "Temperature of the distribution that tokens were drawn from over that of the reported logprobs: 1 if the "
        "reported numbers are the sampling distribution, the request's temperature if they are raw",
        labels=("temperature",),
    ),
    _gauge(
        "sampling_temperature_over_reported_error",
        "Standard error of posttrain_engine_sampling_temperature_over_reported",
        labels=("temperature",),
    ),
    _histogram("inter_token_seconds", "Time between two tokens of a request"),
    _histogram("request_seconds_per_token", "Mean time per generated token of a request"),
    _histogram("time_to_first_token_seconds", "Time from the arrival of a request to its first token"),
    _histogram("request_seconds", "Time from the arrival of a request to its end"),
    _histogram("queue_seconds", "Time a request waited for its first place in the batch"),
    _histogram("prefill_seconds", "Time a request spent in its prompt"),
    _histogram("decode_seconds", "Time a request spent generating"),
    _histogram("request_generation_tokens", "Tokens generated a request", "tokens"),
    _histogram("request_prompt_tokens", "Prompt tokens a request", "tokens"),
    _histogram("weight_update_seconds", "Time that an update of the weights took"),
)
