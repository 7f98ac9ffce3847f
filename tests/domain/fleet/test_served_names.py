"""Two applications, or two modules, behind one name."""

from __future__ import annotations

import pytest

from holdfast.domain.fleet.served_names import ServedNames, load_names, shared_names

SHOP = ServedNames(application="shop", kinds={"mail": "shop.jobs:mail"}, schedules={"nightly": "shop.jobs:clean"})
CRM = ServedNames(application="crm", kinds={"mail": "crm:mail"}, schedules={"weekly": "crm:clean"})
MOVED = ServedNames(application="shop", kinds={"mail": "shop.mails:mail"})
NOTEBOOK = ServedNames(kinds={"mail": "__main__:mail"})
COMMANDS = ServedNames()
ACROSS = "the kind 'mail' belongs to several applications: "
WITHIN = "the kind 'mail' lives in several modules: "


@pytest.mark.parametrize(
    ("used", "texts"),
    [
        ([], []),
        ([SHOP, SHOP, COMMANDS], []),
        ([SHOP, CRM], [ACROSS + "crm of crm and shop.jobs of shop"]),
        ([SHOP, MOVED], [WITHIN + "shop.jobs of shop and shop.mails of shop"]),
        ([SHOP, NOTEBOOK], [WITHIN + "__main__ and shop.jobs of shop"]),
        ([SHOP, MOVED, CRM], [ACROSS + "crm of crm and shop.jobs of shop and shop.mails of shop"]),
        # A function that is renamed within its module keeps the name by intent: name= names it.
        ([SHOP, ServedNames(application="shop", kinds={"mail": "shop.jobs:send"})], []),
        # Two applications may use one library of jobs.
        ([ServedNames(application=name, kinds={"clean": "library:clean"}) for name in ("shop", "crm")], []),
        (
            [SHOP, ServedNames(application="crm", schedules={"nightly": "crm:clean"}, scopes={"nightly": "crm:all"})],
            ["the schedule 'nightly' belongs to several applications: crm of crm and shop.jobs of shop"],
        ),
    ],
)
def test_names_with_different_code_are_found(used, texts):
    assert [each.text for each in shared_names(used)] == texts
    assert all(each.across == ("applications" in each.text) for each in shared_names(used))


def test_names_are_kept_as_they_are():
    for names in (SHOP, CRM, MOVED, NOTEBOOK, COMMANDS):
        assert load_names(names.dumps()) == names
