"""Access tokens."""

from __future__ import annotations

import pytest

from holdfast.domain.access.tokens import draw_token, is_secret_of, prefix_of, seal, unseal
from holdfast.errors import InvalidInput


def test_a_token_is_known_by_its_hash_alone():
    """The prefix finds it, the secret opens; nothing that is kept holds the secret."""
    drawn = draw_token()
    assert prefix_of(drawn.text) == drawn.prefix
    assert is_secret_of(drawn.text, drawn.hash)
    assert not is_secret_of(drawn.text[:-1], drawn.hash)
    assert drawn.text.removeprefix(drawn.prefix) not in drawn.hash
    assert draw_token().text != drawn.text


@pytest.mark.parametrize(
    "text", ["", "hf_", "hf_12345678", "hf_12345678_short", "xx_12345678_" + "a" * 43, "hf_12345678_" + "a" * 999]
)
def test_texts_that_are_not_tokens(text):
    assert prefix_of(text) is None


def test_a_sealed_text_opens_with_its_secret_and_purpose_alone():
    """Equal texts are sealed alike, so that an address stays the same; different ones share nothing."""
    sealed = seal("key-1", "secret", "a")
    assert unseal(sealed, "secret", "a") == "key-1"
    assert sealed == seal("key-1", "secret", "a")
    assert sealed[-6:] != seal("key-2", "secret", "a")[-6:]
    for text, secret, purpose in (
        (sealed, "other", "a"),
        (sealed, "secret", "b"),
        (sealed[:-2], "secret", "a"),
        ("", "s", "a"),
    ):
        with pytest.raises(InvalidInput):
            unseal(text, secret, purpose)


@pytest.mark.parametrize("text", ["", "é", "x" * 1000])
def test_any_text_can_be_sealed(text):
    assert unseal(seal(text, "secret", "a"), "secret", "a") == text
