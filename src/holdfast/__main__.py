"""``python -m holdfast`` runs the ``holdfast`` command."""

from holdfast.cli.main import main

main()
