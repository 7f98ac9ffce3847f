"""Access tokens."""

from __future__ import annotations

import pytest

from holdfast.domain.access.tokens import draw_token, is_secret_of, split_token


def test_a_token_is_known_by_its_hash_alone():
    """The prefix finds it, the secret opens; nothing that is kept holds the secret."""
    drawn = draw_token()
    prefix, secret = split_token(drawn.text)
    assert prefix == drawn.prefix
    assert is_secret_of(secret, salt=drawn.salt, expected=drawn.hash)
    assert not is_secret_of(secret[:-1], salt=drawn.salt, expected=drawn.hash)
    assert secret not in drawn.hash + drawn.salt + drawn.prefix
    assert draw_token().text != drawn.text


@pytest.mark.parametrize(
    "text", ["", "hf_", "hf_12345678", "hf_12345678_short", "xx_12345678_" + "a" * 43, "hf_12345678_" + "a" * 999]
)
def test_texts_that_are_not_tokens(text):
    assert split_token(text) is None
