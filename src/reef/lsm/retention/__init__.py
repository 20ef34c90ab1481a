"""Retention: what is needed, what was superseded, what is pinned, and collecting the rest."""
