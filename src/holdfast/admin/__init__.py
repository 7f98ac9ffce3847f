"""Views and actions of operators, and the checks of the doctor."""
