"""Rule files, the life cycle of alerts, annotation templates, delivery."""
