"""Actions of operators. Each change leaves an audit entry."""
