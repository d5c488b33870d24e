"""The configuration of the Celery app."""

import pytest
from celery import Celery

from scheduler.messaging.celery_app import ADVANCE, EXECUTE, NODES, QUEUE_PROBE, RUNS, START, make_app

REDIS, RABBIT = "redis://localhost:6379/0", "amqp://localhost//"


@pytest.mark.parametrize(("task", "queue"), [(EXECUTE, NODES), (QUEUE_PROBE, NODES), (ADVANCE, RUNS), (START, RUNS)])
def test_task_is_routed_to_its_queue_by_its_name(task: str, queue: str):
    app = make_app(REDIS)

    assert app.amqp.router.route({}, task)["queue"].name == queue


def test_task_without_a_route_goes_to_the_runs_queue():
    assert make_app(REDIS).conf.task_default_queue == RUNS


def test_only_json_messages_are_accepted():
    conf = make_app(REDIS).conf

    assert (conf.task_serializer, list(conf.accept_content)) == ("json", ["json"])


def test_message_is_acknowledged_after_its_task_and_results_are_not_stored():
    conf = make_app(REDIS).conf

    assert conf.task_acks_late
    assert conf.task_reject_on_worker_lost
    assert conf.task_ignore_result


def test_visibility_timeout_is_at_least_six_hours():
    assert make_app(REDIS).conf.broker_transport_options["visibility_timeout"] >= 6 * 3600


def test_sender_without_a_broker_fails_within_two_seconds():
    options = make_app(REDIS).conf.broker_transport_options

    assert options["max_retries"] * max(1, options["interval_start"]) <= 1
    assert make_app(REDIS).conf.broker_connection_timeout <= 2


def test_rabbitmq_queues_have_default_declarations_and_publisher_confirms():
    app, sender = make_app(RABBIT), Celery(broker=RABBIT)

    for queue in app.conf.task_queues:
        plain = sender.amqp.queues[queue.name]
        assert queue.as_dict(recurse=True) == plain.as_dict(recurse=True)
    assert app.conf.broker_transport_options == {"confirm_publish": True}


def test_redis_queues_have_no_arguments():
    assert {queue.queue_arguments for queue in make_app(REDIS).conf.task_queues} == {None}


def test_two_apps_of_one_process_do_not_share_their_settings():
    first, second = make_app(REDIS, publishers=2), make_app(RABBIT, publishers=9)

    assert first.conf.broker_url == REDIS
    assert first.conf.broker_pool_limit < second.conf.broker_pool_limit
