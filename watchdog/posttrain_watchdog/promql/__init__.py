"""PromQL over the daemon's own series: parse, evaluate, inspect. Knows nothing of reinforcement learning."""

from posttrain_watchdog.promql.engine import Engine, EngineSettings, Query
from posttrain_watchdog.promql.errors import PromQLError
from posttrain_watchdog.promql.inspect import names, selectors
from posttrain_watchdog.promql.syntax import parse
from posttrain_watchdog.promql.values import Matrix, Scalar, String, Value, Vector

__all__ = [
    "Engine",
    "EngineSettings",
    "Matrix",
    "PromQLError",
    "Query",
    "Scalar",
    "String",
    "Value",
    "Vector",
    "names",
    "parse",
    "selectors",
]
