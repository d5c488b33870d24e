"""The Celery app: nothing we promise rests on it, and nothing of it may surprise."""

import pytest
from celery import Celery

from scheduler.messaging.celery_app import ADVANCE, EXECUTE, NODES, QUEUE_PROBE, RUNS, START, make_app

REDIS, RABBIT = "redis://localhost:6379/0", "amqp://localhost//"


@pytest.mark.parametrize(("task", "queue"), [(EXECUTE, NODES), (QUEUE_PROBE, NODES), (ADVANCE, RUNS), (START, RUNS)])
def test_any_client_that_knows_a_tasks_name_reaches_its_queue(task: str, queue: str):
    app = make_app(REDIS)

    assert app.amqp.router.route({}, task)["queue"].name == queue


def test_a_task_without_a_route_goes_to_no_worker_of_ours():
    assert make_app(REDIS).conf.task_default_queue == RUNS


def test_only_json_is_read():
    conf = make_app(REDIS).conf

    assert (conf.task_serializer, list(conf.accept_content)) == ("json", ["json"])


def test_a_message_is_done_when_its_task_is_and_results_are_kept_nowhere():
    conf = make_app(REDIS).conf

    assert conf.task_acks_late
    assert conf.task_reject_on_worker_lost
    assert conf.task_ignore_result


def test_a_node_that_takes_hours_is_not_delivered_again_meanwhile():
    assert make_app(REDIS).conf.broker_transport_options["visibility_timeout"] >= 6 * 3600


def test_a_sender_that_finds_no_broker_gives_up_soon():
    options = make_app(REDIS).conf.broker_transport_options

    assert options["max_retries"] * max(1, options["interval_start"]) <= 1
    assert make_app(REDIS).conf.broker_connection_timeout <= 2


def test_queues_of_rabbitmq_are_declared_as_any_sender_declares_them_and_confirmed():
    app, sender = make_app(RABBIT), Celery(broker=RABBIT)

    for queue in app.conf.task_queues:
        plain = sender.amqp.queues[queue.name]
        assert queue.as_dict(recurse=True) == plain.as_dict(recurse=True)
    assert app.conf.broker_transport_options == {"confirm_publish": True}


def test_redis_queues_have_no_arguments_that_it_does_not_know():
    assert {queue.queue_arguments for queue in make_app(REDIS).conf.task_queues} == {None}


def test_two_apps_of_one_process_do_not_share_their_settings():
    first, second = make_app(REDIS, publishers=2), make_app(RABBIT, publishers=9)

    assert first.conf.broker_url == REDIS
    assert first.conf.broker_pool_limit < second.conf.broker_pool_limit
