"""Bounded in-memory time series: the live values, their step windows, and the store that rules look into."""
