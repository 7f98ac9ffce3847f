"""The command switch of the store: while it is off, no worker runs a command."""

from __future__ import annotations

from holdfast.store.engine.operation import Noun, query


class CommandSwitch(Noun):
    """Whether workers may run commands. The default is on."""

    def is_on(self) -> bool:
        return not self._fetch("read_command_switch")

    def set(self, *, on: bool) -> bool:
        """Switch commands on or off, from the next start of a command on; returns whether that changed anything."""
        return bool(self._backend.run(query("switch_commands_on" if on else "switch_commands_off")))
