"""Go's text/template as Prometheus users write it in labels and annotations: parsed and expanded as data."""

from posttrain_watchdog.alerting.templates.evaluate import Context, expand
from posttrain_watchdog.alerting.templates.parse import Template, TemplateError, parse

__all__ = ["Context", "Template", "TemplateError", "expand", "parse"]
