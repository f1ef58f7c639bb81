"""MSCCL XML: the files that other tools write and that the runtimes of clouds and vendors read.

``read`` makes a :class:`~schedlang.msccl.plan.Plan` of a file, ``tables`` the op tables of a plan: one for each way it
may be used, in place and out of place.
"""
