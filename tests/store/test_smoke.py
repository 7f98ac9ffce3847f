from holdfast.domain.request import NewJob


def test_a_job_can_be_enqueued_and_read(store):
    """What was enqueued is there."""
    answer = store.jobs.enqueue(NewJob(kind="mail", payload='{"to":1}'))
    assert store.views.get(answer.id).payload == '{"to":1}'
