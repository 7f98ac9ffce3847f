"""Schedules for tests."""

from __future__ import annotations

from holdfast import Plan


def declare(app, expression="*/5 * * * *", **options):
    """Declare a schedule ``rollup``; return the list that its handler appends its plans to."""
    seen = []

    @app.schedule(expression, **options)
    @app.job()
    def rollup(plan: Plan) -> None:
        seen.append(plan)

    return seen
