"""Models behind HTTP, by the Open Inference Protocol: ``weft.serve.app`` and ``weft.serve.run``.

See docs/serving.md. Needs ``pip install 'weft[serve]'``.
"""

from weft.serve.serving import app, run
from weft.serve.settings import Settings

__all__ = ["Settings", "app", "run"]
