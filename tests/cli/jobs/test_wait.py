"""``wait``."""

from __future__ import annotations


def test_wait_exits_with_the_result(run, app):
    good, bad = app.enqueue("mail", {"to": 1}), app.enqueue("broken")
    app.worker(queues=["default", "slow"], drain=True, poll=0.02).run()
    assert [run("wait", *ids).code for ids in ([good.id], [bad.id], [good.id, bad.id])] == [0, 1, 6]
    late = app.enqueue("mail", {"to": 2}, hold=True)
    assert run("wait", late.id, "--timeout", "0s").code == 10
