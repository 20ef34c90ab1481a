"""Benchmarks: Reef and its peers on the same data, in one process run, as ratios against bars."""
