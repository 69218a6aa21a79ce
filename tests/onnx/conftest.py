"""Leaves out what tests do without: the script that makes files for them, and a browser with netron.

``WEFT_BROWSER=1`` asks for the tests in a browser.
"""

import os

collect_ignore = ["make_files.py"] + ([] if os.environ.get("WEFT_BROWSER") else ["test_export_netron.py"])
