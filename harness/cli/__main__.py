"""``python -m harness.cli`` is the ``isobatch`` command."""

from harness.cli.app import main

main()
