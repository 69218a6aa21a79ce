"""How Sphinx builds the site; ``python -m docs_tools`` runs it on the pages that it gathered."""

import tomllib
from pathlib import Path
from typing import Any

_here = Path(__file__).parent
_project = tomllib.loads((_here.parent / "pyproject.toml").read_text())["project"]

project = _project["name"]
version = release = _project["version"]
author = "the authors of weft"
html_title = f"{project} {version}"

extensions = ["myst_parser", "sphinx_copybutton"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = True
suppress_warnings = [
    "myst.header",  # levels that a page jumps
    "misc.highlighting_failure",  # text of graphs
    "ref.python",  # a type variable T that could be a method
]

html_theme = "furo"
html_static_path = [str(_here / "static")]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
pygments_style = "default"  # colours that can be read: all at least 4.5 to 1 against their ground
pygments_dark_style = "github-dark"

# Examples are doctests: what is copied is what one types.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

python_maximum_signature_line_length = 100
python_display_short_literal_types = True
add_module_names = True
toc_object_entries = (
    False  # a page lists its names at the top; in the sidebar of every page they take minutes
)
nitpicky = True
nitpick_ignore_regex = [(r"py:(class|exc|data)", ".*")]  # types in signatures are told, not all have a page


def _say_language(_app: Any, page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """Pages in Chinese say so: browsers choose fonts and break lines by it."""
    if page.startswith("course/zh/") or page == "readme-zh":
        context["language"] = "zh-CN"


def setup(app: Any) -> None:
    """What Sphinx calls."""
    app.connect("html-page-context", _say_language)
