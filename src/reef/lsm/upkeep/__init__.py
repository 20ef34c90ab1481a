"""Upkeep of a tree: folding the log into segments, compaction, and who does the parts of it."""
