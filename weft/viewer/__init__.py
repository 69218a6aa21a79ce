"""Pictures of graphs: of captured ones, of the dynamic graph behind a tensor, and of data pipelines."""

from weft.viewer.picture import Picture, dot

__all__ = ["Picture", "dot"]
