"""The files of deploy/, and the drills of operators."""
