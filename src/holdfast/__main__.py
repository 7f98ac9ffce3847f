"""``python -m holdfast`` is the ``holdfast`` program."""

from holdfast.cli.main import main

main()
