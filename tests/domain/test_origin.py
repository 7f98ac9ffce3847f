"""Where functions live."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from holdfast.domain.origin import is_same_place, module_of_file

#: The folders of the table that are packages.
PACKAGES = {"/work/shop", "/work/shop/jobs", "/work/src/crm"}


@pytest.mark.parametrize(
    ("file", "path", "module"),
    [
        ("/work/mails.py", [], "mails"),
        ("/work/mails.py", ["/work"], "mails"),
        # A package decides, however its file is started and whatever the path of imports is.
        ("/work/shop/mails.py", ["/work/shop"], "shop.mails"),
        ("/work/shop/mails.py", ["/work"], "shop.mails"),
        ("/work/shop/jobs/mails.py", [], "shop.jobs.mails"),
        ("/work/src/crm/mails.py", ["/work"], "crm.mails"),
        ("/work/shop/__init__.py", [], "shop"),
        ("/work/shop/__main__.py", [], "shop.__main__"),
        # A folder without __init__.py is a package below a folder of the path; the deepest one counts.
        ("/work/tools/mails.py", [], "mails"),
        ("/work/tools/mails.py", ["/work/tools", "/elsewhere"], "mails"),
        ("/work/tools/mails.py", ["/work/tools", "/work"], "tools.mails"),
        ("/work/src/tools/mails.py", ["/work", "/work/src"], "tools.mails"),
        ("/work/my-tools/mails.py", ["/work"], "mails"),
        ("/work/tools/__main__.py", [], "tools.__main__"),
        # Scripts with other names, and compiled modules.
        ("/work/bin/send-mails", [], "send-mails"),
        ("/work/shop/fast.cpython-311-x86_64-linux-gnu.so", [], "shop.fast"),
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
