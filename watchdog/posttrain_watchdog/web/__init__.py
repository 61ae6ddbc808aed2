"""HTTP: /metrics, the Prometheus-compatible API, health, the status page."""
