"""Pictures of graphs, and pages to look into them: of captured graphs, and of the dynamic one of a tensor."""

from weft.viewer.page import view
from weft.viewer.picture import Picture, dot

__all__ = ["Picture", "dot", "view"]
