"""Documents: namespaces of rows with an id and attributes, the first face of Reef.

Owns what users call: the database, namespaces for writing and reading, conditions, scans, change
feeds and bulk loads. Relies on the tree. The invariant: nothing reaches the log unchecked, and
nothing is returned that a checksum did not vouch for.
"""

from reef.documents.changes import Change
from reef.documents.conditions import if_absent, if_equal, if_exists
from reef.documents.database import Database, connect
from reef.documents.namespace import Namespace
from reef.documents.reading import Reading
from reef.documents.scan import Scan

__all__ = [
    "Change",
    "Database",
    "Namespace",
    "Reading",
    "Scan",
    "connect",
    "if_absent",
    "if_equal",
    "if_exists",
]
