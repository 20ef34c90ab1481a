"""Writing to a tree: admission, group commit, large batches, bulk loads, idempotency keys."""
