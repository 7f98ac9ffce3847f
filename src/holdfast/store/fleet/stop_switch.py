"""The switches of the store: while it is stopped, no job starts and no plan fires; commands have one of their own."""

from __future__ import annotations

from contextlib import suppress

from holdfast.domain.fleet.stop_switch import STOP_NOTE, StopMode, StopSwitch
from holdfast.domain.jobs.job import JobId
from holdfast.domain.names import checked_actor, clean_text
from holdfast.errors import JobLocked, StoreStopped
from holdfast.store.engine.changes import EVERYTHING
from holdfast.store.engine.operation import Noun, Operation, query, transaction
from holdfast.store.fleet.registry import MAX_NOTE_LENGTH


class StopSwitches(Noun):
    """Sets, reads and clears the switch."""

    def set(self, mode: StopMode, *, actor: str, note: str | None = None) -> StopSwitch:
        """Stop the store: no claim, foreground run or unit begins after the return. Returns the switch in force.

        It covers every queue, known or not. A drain does not weaken an emergency stop.
        """
        checked_actor(actor)
        text = None if note is None else clean_text(note, limit=MAX_NOTE_LENGTH)
        switch = self._set(mode, actor, text)
        # A user's long transaction may hold the lock: the switch is in force without the wait, too.
        with suppress(JobLocked):
            self._wait_for_claims()
        return switch

    @transaction()
    def _set(self, mode: StopMode, actor: str, note: str | None) -> Operation[StopSwitch]:
        yield query("set_stop_switch", mode=mode, actor=actor, note=note)
        switches: list[StopSwitch] = yield query("read_stop_switch", StopSwitch)
        return switches[0]

    @transaction()
    def _wait_for_claims(self) -> Operation[None]:
        yield query("limit_lock_waits", longest="2s")
        yield query("lock_stop_switch")

    @transaction(wakes=EVERYTHING)
    def clear(self) -> Operation[StopSwitch | None]:
        """Let the store start jobs again; returns the switch that was in force, if any. Workers are woken."""
        switches: list[StopSwitch] = yield query("clear_stop_switch", StopSwitch)
        return switches[0] if switches else None

    def get(self) -> StopSwitch | None:
        """The switch in force; None if the store is not stopped."""
        switches: list[StopSwitch] = self._fetch("read_stop_switch", StopSwitch)
        return switches[0] if switches else None

    def check(self) -> None:
        """Raise StoreStopped if the store is stopped."""
        refuse_if_stopped(self.get())

    def stopped_jobs(self) -> list[JobId]:
        """The jobs that emergency stops hold, or have requested to stop."""
        return [row[0] for row in self._fetch("list_stopped_jobs", prefix=STOP_NOTE)]


class CommandSwitch(Noun):
    """Whether workers may run commands. The default is on."""

    def is_on(self) -> bool:
        return not self._fetch("read_command_switch")

    def set(self, *, on: bool) -> bool:
        """Switch commands on or off, from the next start of a command on; returns whether that changed anything."""
        return bool(self._backend.run(query("switch_commands_on" if on else "switch_commands_off")))


def refuse_if_stopped(switch: StopSwitch | None) -> None:
    """Raise StoreStopped if *switch* is in force."""
    if switch is not None:
        raise StoreStopped(switch.text, mode=switch.mode, actor=switch.actor)
