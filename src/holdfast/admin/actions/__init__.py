"""What operators do: every change, with its audit entry."""
