"""The tests in a browser need one: ``make test-view`` installs it, and asks for them."""

import os

collect_ignore = [] if os.environ.get("WEFT_BROWSER") else ["browser"]
