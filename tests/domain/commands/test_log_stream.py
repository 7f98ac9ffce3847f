"""Filters for the bytes of a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.commands.log_stream import SecretFilter, TerminalFilter


def pieces(data, sizes):
    """The data in pieces of these sizes, which repeat."""
    while data:
        for size in sizes:
            yield data[:size]
            data = data[size:]


def terminal(data, *sizes, color=True):
    safe = TerminalFilter(color=color)
    return "".join(safe.feed(piece) for piece in pieces(data, sizes or (len(data),))) + safe.feed(b"", last=True)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_a_terminal_gets_colours_and_carriage_returns(size):
    """E5.7: whatever the pieces, also in the middle of a sequence or a character."""
    text = "10 %\r20 %\r\n\x1b[1;31mred\x1b[0m gr\u00fcn \u2713\b\tend\n"
    assert terminal(text.encode(), size) == text + "\x1b[0m"
    assert terminal(text.encode(), size, color=False) == "10 %\r20 %\r\nred gr\u00fcn \u2713\b\tend\n"


@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize(
    "sequence",
    ["\x1b]0;title\x07", "\x1b[2J", "\x1b[6n", "\x1bc", "\x1b[1;1H", "\x9b2J", "\x07", "\x1b", "\x1b[" + "1" * 100],
)
def test_a_terminal_gets_no_other_sequence(sequence, size):
    """E5.7: nothing that moves the cursor, sets the title or makes the terminal answer."""
    shown = terminal(f"a{sequence}b".encode(), size)
    assert not set(shown) & {"\x1b", "\x07", "\x9b"}
    assert (shown[0], shown[-1]) == ("a", "b")


def test_bytes_that_are_no_text_are_replaced_on_a_terminal():
    assert terminal(b"a\xff\xfeb", 1) == "a\ufffd\ufffdb"


@given(
    st.binary(max_size=60), st.lists(st.sampled_from([b"secret-1", b"secret", b"ret-s"]), max_size=4), st.integers(1, 9)
)
def test_secrets_are_replaced_in_every_cut(data, secrets, size):
    """Other bytes pass unchanged, and nothing is held back at the end."""
    text = data.join([b"", *secrets, b""])
    filtered = SecretFilter(["secret-1", "secret"])
    shown = b"".join(filtered.feed(piece) for piece in pieces(text, (size,))) + filtered.feed(b"", last=True)
    assert b"secret" not in shown
    if b"secret" not in text:
        assert shown == text


def test_only_the_beginning_of_a_secret_is_held_back():
    filtered = SecretFilter(["s3cret"])
    assert (filtered.feed(b"prompt> s"), filtered.feed(b"3"), filtered.feed(b"x")) == (b"prompt> ", b"", b"s3x")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("text", [b"secret-1", b"abca", b"abcabca", b"secretsecret-1"])
def test_no_part_of_a_secret_is_left(text, size):
    """One secret may begin with another, and with its own end."""
    filtered = SecretFilter(["secret", "secret-1", "abca", "bcab"])
    shown = b"".join(filtered.feed(piece) for piece in pieces(text, (size,))) + filtered.feed(b"", last=True)
    assert shown.replace(b"***", b"") in (b"", b"bca")
