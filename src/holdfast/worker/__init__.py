"""The moving parts: each does its work in ``tick()``; threads only call it."""
