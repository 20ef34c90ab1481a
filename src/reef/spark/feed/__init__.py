"""The log as a Spark stream: planning, slots, rows, and the source that serves them."""
