"""Where functions live."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from holdfast.domain.origin import is_same_place, module_of_file

#: The folders of the table that are packages.
PACKAGES = {"/srv/shop", "/srv/shop/jobs", "/srv/src/crm"}


@pytest.mark.parametrize(
    ("file", "path", "module"),
    [
        ("/srv/mails.py", [], "mails"),
        ("/srv/mails.py", ["/srv"], "mails"),
        # A package decides, however its file is started and whatever the path of imports is.
        ("/srv/shop/mails.py", ["/srv/shop"], "shop.mails"),
        ("/srv/shop/mails.py", ["/srv"], "shop.mails"),
        ("/srv/shop/jobs/mails.py", [], "shop.jobs.mails"),
        ("/srv/src/crm/mails.py", ["/srv"], "crm.mails"),
        ("/srv/shop/__init__.py", [], "shop"),
        ("/srv/shop/__main__.py", [], "shop.__main__"),
        # A folder without __init__.py is a package below a folder of the path; the deepest one counts.
        ("/srv/tools/mails.py", [], "mails"),
        ("/srv/tools/mails.py", ["/srv/tools", "/elsewhere"], "mails"),
        ("/srv/tools/mails.py", ["/srv/tools", "/srv"], "tools.mails"),
        ("/srv/src/tools/mails.py", ["/srv", "/srv/src"], "tools.mails"),
        ("/srv/my-tools/mails.py", ["/srv"], "mails"),
        ("/srv/tools/__main__.py", [], "tools.__main__"),
        # Scripts with other names, and compiled modules.
        ("/srv/bin/send-mails", [], "send-mails"),
        ("/srv/shop/fast.cpython-311-x86_64-linux-gnu.so", [], "shop.fast"),
        ("/__init__.py", [], "__init__"),
    ],
)
def test_a_file_has_the_module_as_which_it_would_be_imported(file, path, module):
    folders = [PurePosixPath(folder) for folder in path]
    assert module_of_file(PurePosixPath(file), folders, lambda folder: str(folder) in PACKAGES) == module


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("mails:sync", "mails:sync", True),
        ("mails:sync", "invoices:sync", False),
        ("mails:sync", "mails:resync", False),
        ("mails", "mails:sync", True),
        ("mails:sync", "mails", True),
        ("mails", "invoices:sync", False),
        ("mails", "invoices", False),
        ("mails", "mails", True),
    ],
)
def test_a_module_alone_is_the_place_of_all_its_functions(one, other, same):
    assert is_same_place(one, other) is same
