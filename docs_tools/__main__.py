"""``python -m docs_tools``: build the site in ``build/site``; any warning is an error."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from docs_tools.pages import ROOT, SOURCES, gather


def main(arguments: list[str] | None = None) -> int:
    """Gather the pages, and have Sphinx make HTML of them."""
    parser = argparse.ArgumentParser(prog="python -m docs_tools", description="Builds weft's site.")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site", help="the folder of HTML")
    parser.add_argument("--without-reference", action="store_true", help="for a quick look at a page")
    given = parser.parse_args(arguments)
    begin = time.perf_counter()
    site = gather(ROOT / "build" / SOURCES, with_reference=not given.without_reference)
    gathered = time.perf_counter()
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-j", "auto"]
    command += ["-c", str(Path(__file__).parent), "-d", str(ROOT / "build" / "site-cache")]
    code = subprocess.run([*command, str(site.folder), str(given.output)], check=False).returncode
    entries = sum(len(page.entries) for page in site.reference)
    took = f"{gathered - begin:.0f} s for the pages and {entries} entries of the reference"
    sys.stdout.write(
        f"{given.output}/index.html ({took}, {time.perf_counter() - gathered:.0f} s for Sphinx)\n"
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
