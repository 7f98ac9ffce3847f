"""The command switch: one test per promise of store/fleet/stop_switch.py."""

from __future__ import annotations


def test_commands_are_on_until_somebody_switches_them_off(store, make_store):
    """E10.1: every process with the store sees it; setting it again changes nothing."""
    assert store.command_switch.is_on()
    assert not store.command_switch.set(on=True)
    assert store.command_switch.set(on=False)
    assert not make_store().command_switch.is_on()
    assert not store.command_switch.set(on=False)
    assert store.command_switch.set(on=True)
    assert make_store().command_switch.is_on()
