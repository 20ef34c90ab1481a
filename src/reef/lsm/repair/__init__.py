"""Repair of a tree: examining, verifying, repairing, and rebuilding from what is left."""
