"""What a row is: attribute types, the schema, ids, and batches of rows in Arrow.

Owns the value types that every kind of object carries. Relies on nothing but Arrow and
NumPy, and does no I/O. The invariant: a batch of rows follows the convention stated in
`reef.data.rows`, whichever object it came from.
"""
