"""Generate C from what Python knows."""
