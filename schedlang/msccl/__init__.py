"""MSCCL XML: the files that other tools write and that the runtimes of clouds and vendors read.

``read`` makes a :class:`~schedlang.msccl.plan.Plan` of a file. ``placements`` are the ways in which it may be used, in
place and out of place, ``table`` the op table of one of them; ``told`` puts what is found in such a table in the words
of the format, and ``notes`` says what a verdict rests on.
"""

from schedlang.msccl.table import notes, placements, root_of, table
from schedlang.msccl.words import told
from schedlang.msccl.xml import loads, read

__all__ = ["loads", "notes", "placements", "read", "root_of", "table", "told"]
