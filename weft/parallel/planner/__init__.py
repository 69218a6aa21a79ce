"""The planner: what a step on a mesh will take, in time, bytes and memory, without the machines to run it on.

``clusters`` says what devices and links can do, ``links`` what a collective takes; ``program`` plans compiled
functions by their graphs, ``transformer`` and ``predict`` plan models by a description; ``search`` goes
through meshes. All of them give a ``Plan``.
"""
