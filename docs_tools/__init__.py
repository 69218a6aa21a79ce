"""The site: ``python -m docs_tools`` gathers the pages, writes the reference, and has Sphinx build it."""
