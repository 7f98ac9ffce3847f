"""Sockets of this program, beside a default time limit that a library has set."""

from __future__ import annotations

import socket

import pytest

from holdfast.store.engine import sockets


@pytest.fixture
def limited():
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.2)
    yield
    socket.setdefaulttimeout(before)


def inherited():
    one, other = socket.socketpair()
    one.close()
    return (sockets.inherited_socket(other.detach()),)


@pytest.mark.parametrize(
    "make",
    [sockets.socket_pair, lambda: (sockets.new_socket(socket.AF_UNIX, socket.SOCK_DGRAM),), inherited],
    ids=["pair", "new", "inherited"],
)
def test_no_socket_has_the_default_limit(limited, make):
    made = make()
    limits = [each.gettimeout() for each in made]
    for each in made:
        each.close()
    assert set(limits) == {None}, "D2 is broken: an internal socket has the time limit of a library"


def test_the_socket_of_a_driver_keeps_its_mode(limited):
    """Both descriptors share it: a driver that polls must not block."""
    one, other = socket.socketpair()
    one.setblocking(False)
    with one, other:
        sockets.shut_down(one.fileno())
        assert not one.getblocking()
        assert other.recv(1) == b""
