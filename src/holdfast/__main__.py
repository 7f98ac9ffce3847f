"""``python -m holdfast`` is the ``holdfast`` program."""

from holdfast.cli import main

main()
