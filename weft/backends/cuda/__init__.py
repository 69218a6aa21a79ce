"""NVIDIA's GPUs: the driver, memory, streams, arrays, launches; ``BACKEND`` runs graphs on them.

``weft.cuda`` is what users see of it. Nothing here is imported before a device is asked for.
"""
