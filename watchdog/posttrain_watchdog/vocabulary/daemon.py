"""The daemon about itself."""

from __future__ import annotations

from posttrain_watchdog.vocabulary.spec import Spec

PREFIX = "posttrain_watchdog_"

METRICS: tuple[Spec, ...] = (
    Spec(PREFIX + "build_info", "1; the version is a label", labels=("version",)),
    Spec(PREFIX + "start_time_seconds", "When the daemon began", "seconds"),
    Spec(PREFIX + "source_up", "1 while the source can be read", labels=("path", "kind")),
    Spec(PREFIX + "source_lag_bytes", "Bytes written that have not been read yet", "bytes", labels=("path",)),
    Spec(
        PREFIX + "source_last_data_timestamp_seconds",
        "When the source last gave data",
        "seconds",
        labels=("path",),
    ),
    Spec(PREFIX + "lines_total", "Lines read", kind="counter", labels=("path",)),
    Spec(PREFIX + "parse_errors_total", "Records that could not be read", kind="counter", labels=("path",)),
    Spec(
        PREFIX + "files_lost_total",
        "Times a file was emptied or replaced and what it held before could not be found, read or not",
        kind="counter",
        labels=("path",),
    ),
    Spec(PREFIX + "nvml_up", "1 while NVML answers, 0 where there is no GPU or driver"),
    Spec(PREFIX + "series", "Series in memory"),
    Spec(PREFIX + "series_dropped_total", "Series or points dropped at the caps", kind="counter"),
    Spec(PREFIX + "rules_loaded", "Rules in force"),
    Spec(PREFIX + "rules_reload_successful", "1 if the last load of the rule files worked"),
    Spec(PREFIX + "rules_reload_timestamp_seconds", "When rule files were last loaded", "seconds"),
    Spec(
        PREFIX + "rule_evaluation_failures_total",
        "Rule evaluations that failed",
        kind="counter",
        labels=("rule",),
    ),
    Spec(
        PREFIX + "rule_evaluation_seconds",
        "Duration of the last evaluation of the group",
        "seconds",
        labels=("group",),
    ),
    Spec(PREFIX + "notifications_total", "Notifications sent", kind="counter", labels=("receiver",)),
    Spec(
        PREFIX + "notifications_failed_total",
        "Notifications that failed",
        kind="counter",
        labels=("receiver",),
    ),
    Spec(PREFIX + "notifications_dropped_total", "Notifications given up", kind="counter"),
    Spec(PREFIX + "outbox_length", "Notifications waiting to be sent"),
    Spec(PREFIX + "job_failures_total", "Scheduled jobs that raised", kind="counter", labels=("job",)),
)
