"""Conversations (sessions) and their messages."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from canvas.errors import NotFound
from store.agents import canvases, conversation_runs, conversations, versions
from store.agents.conversations import ConversationFilter
from store.db.database import Database
from store.primitives.ids import new_id
from tests.integration.store.rows import add_assistant_message, add_run, add_user_message

CANVAS = new_id()
VERSION = new_id()


def create(database: Database, tenant_id: UUID, canvas_id: UUID = CANVAS, **options: Any) -> UUID:
    with database.transaction() as tx:
        return conversations.create(tx, tenant_id, canvas_id, VERSION, **options)


def names(database: Database, tenant_id: UUID, filters: ConversationFilter | None = None, **options: Any) -> list[str]:
    with database.transaction() as tx:
        found, total = conversations.page(tx, tenant_id, CANVAS, filters or ConversationFilter(), **options)
    assert total >= len(found)
    return [conversation.name for conversation in found]


def test_messages_can_be_added_while_another_transaction_has_locked_the_conversation(
    database: Database, tenant_id: UUID
):
    conversation = create(database, tenant_id)

    with database.transaction() as holder, database.transaction() as tx:
        assert conversation_runs.lock(holder, tenant_id, conversation)
        tx.execute(text("set local lock_timeout = 2000"))
        add_user_message(tx, conversation, 1, "Hello")


def test_conversation_has_the_version_it_was_created_with_and_its_title(database: Database, tenant_id: UUID):
    with database.transaction() as tx:
        canvas_id = canvases.create(tx, tenant_id, "Support", {"components": {}})
        version = versions.lock_draft_version(tx, tenant_id, canvas_id)
        made = conversations.create(tx, tenant_id, canvas_id, version.id, "ann", "Hello", "agent")

        conversation = conversations.get(tx, tenant_id, made, canvas_id)

    assert (conversation.version_id, conversation.version_title) == (version.id, version.title)
    assert (conversation.user_id, conversation.name, conversation.source) == ("ann", "Hello", "agent")
    assert (conversation.active_run, conversation.messages, conversation.rounds) == (None, 0, 0)


def test_caller_may_choose_the_id_of_a_new_conversation(database: Database, tenant_id: UUID):
    own = new_id()

    assert create(database, tenant_id, conversation_id=own) == own


def test_conversation_of_another_tenant_or_canvas_is_not_found(
    database: Database, tenant_id: UUID, other_tenant_id: UUID
):
    made = create(database, tenant_id)
    with database.transaction() as tx:
        add_user_message(tx, made, 1, "hello")

    with database.transaction() as tx:
        with pytest.raises(NotFound, match="Session not found!"):
            conversations.get(tx, other_tenant_id, made)
        with pytest.raises(NotFound, match="Session not found!"):
            conversations.get(tx, tenant_id, made, new_id())
        assert conversations.list_messages(tx, other_tenant_id, made) == []
        assert conversations.delete(tx, other_tenant_id, CANVAS, [made]) == set()
        assert conversations.delete(tx, tenant_id, new_id(), [made]) == set()
        assert conversations.get(tx, tenant_id, made)


def test_history_has_the_last_messages_up_to_a_number_oldest_first(database: Database, tenant_id: UUID):
    made = create(database, tenant_id)
    with database.transaction() as tx:
        add_user_message(tx, made, 1, "first")
        add_assistant_message(tx, made, 2, {"content": "one"})
        add_user_message(tx, made, 3, {"content": "second", "files": []})
        add_assistant_message(tx, made, 4, {"content": "two", "downloads": []})
        add_user_message(tx, made, 5, "third")

    with database.transaction() as tx:
        assert conversations.load_history(tx, made, upto=4, limit=3) == [
            {"role": "assistant", "content": {"content": "one"}},
            {"role": "user", "content": {"content": "second", "files": []}},
            {"role": "assistant", "content": {"content": "two", "downloads": []}},
        ]
        assert len(conversations.load_history(tx, made, upto=5, limit=100)) == 5
        assert conversations.load_history(tx, made, upto=5, limit=0) == []
        assert conversations.load_history(tx, made, upto=0, limit=5) == []


def test_user_message_without_text_has_null_content(database: Database, tenant_id: UUID):
    made = create(database, tenant_id)
    with database.transaction() as tx:
        add_user_message(tx, made, 1, None)

        assert conversations.load_history(tx, made, upto=1, limit=1) == [{"role": "user", "content": None}]


def test_answer_whose_outputs_were_deleted_by_retention_has_no_content(database: Database, tenant_id: UUID):
    made = create(database, tenant_id)
    with database.transaction() as tx:
        add_assistant_message(tx, made, 1, {"content": "gone"})
        tx.execute(text("delete from node_values"))

        (message,) = conversations.list_messages(tx, tenant_id, made)

    assert (message.number, message.role, message.content) == (1, "assistant", None)


def test_messages_are_listed_in_order_with_their_runs(database: Database, tenant_id: UUID):
    made = create(database, tenant_id)
    with database.transaction() as tx:
        add_assistant_message(tx, made, 2, {"content": "one"})
        add_user_message(tx, made, 1, "first")

    with database.transaction() as tx:
        first, second = conversations.list_messages(tx, tenant_id, made)

    assert (first.number, first.role, first.content) == (1, "user", "first")
    assert (second.number, second.content, second.node_id) == (2, {"content": "one"}, "Message:0")
    assert first.run_id is not None
    assert second.activation_id is not None


def test_conversations_are_listed_by_their_last_update_by_default(database: Database, tenant_id: UUID):
    first = create(database, tenant_id, name="first")
    create(database, tenant_id, name="second")
    create(database, tenant_id, new_id(), name="elsewhere")
    with database.transaction() as tx:
        tx.execute(text("update conversations set updated_at = now() where id = :id"), id=first)

    assert names(database, tenant_id) == ["first", "second"]
    assert names(database, tenant_id, descending=False) == ["second", "first"]
    assert names(database, tenant_id, order_by="create_time") == ["second", "first"]
    assert names(database, tenant_id, order_by="nonsense") == ["first", "second"]
    assert names(database, tenant_id, limit=1, offset=1) == ["second"]


def test_keywords_match_ids_names_and_messages_of_both_roles(database: Database, tenant_id: UUID):
    by_name = create(database, tenant_id, name="About Invoices")
    in_question = create(database, tenant_id, name="in_question")
    in_answer = create(database, tenant_id, name="in_answer")
    with database.transaction() as tx:
        add_user_message(tx, in_question, 1, 'the "INVOICE" of 50%')
        add_assistant_message(tx, in_answer, 1, {"content": "Your invoice is on its way", "other": "parcel"})

    assert names(database, tenant_id, ConversationFilter(keywords="invoice")) == [
        "in_answer",
        "in_question",
        "About Invoices",
    ]
    assert names(database, tenant_id, ConversationFilter(keywords='"invoice"')) == ["in_question"]
    assert names(database, tenant_id, ConversationFilter(keywords="50%")) == ["in_question"]
    assert names(database, tenant_id, ConversationFilter(keywords="5_%")) == []
    assert names(database, tenant_id, ConversationFilter(keywords="parcel")) == []
    assert names(database, tenant_id, ConversationFilter(keywords=by_name.hex[4:])) == ["About Invoices"]
    assert names(database, tenant_id, ConversationFilter(keywords=str(in_answer))) == ["in_answer"]


def test_conversations_are_filtered_by_ids_users_and_inclusive_times(database: Database, tenant_id: UUID):
    old = create(database, tenant_id, name="old", user_id="ann")
    create(database, tenant_id, name="new", user_id="bob")
    noon = datetime(2026, 3, 3, 12, tzinfo=UTC)
    with database.transaction() as tx:
        tx.execute(text("update conversations set created_at = :at where id = :id"), at=noon, id=old)

    assert names(database, tenant_id, ConversationFilter(ids=[old])) == ["old"]
    assert names(database, tenant_id, ConversationFilter(user_id="bob")) == ["new"]
    assert names(database, tenant_id, ConversationFilter(since=noon, until=noon), order_by="create_time") == ["old"]
    assert (
        names(database, tenant_id, ConversationFilter(until=noon - timedelta(seconds=1)), order_by="create_time") == []
    )
    assert names(database, tenant_id, ConversationFilter(since=noon, until=noon), order_by="update_time") == []


def test_deleting_conversations_deletes_messages_and_returns_existing_ids(database: Database, tenant_id: UUID):
    one, other = create(database, tenant_id), create(database, tenant_id)
    with database.transaction() as tx:
        add_user_message(tx, one, 1, "hello")

    with database.transaction() as tx:
        deleted = conversations.delete(tx, tenant_id, CANVAS, [one, new_id()])

    assert deleted == {one}
    with database.transaction() as tx:
        assert tx.scalar(text("select count(*) from conversation_messages where conversation_id = :id"), id=one) == 0
        assert conversations.delete_all(tx, tenant_id, CANVAS) == 1
        with pytest.raises(NotFound):
            conversations.get(tx, tenant_id, other)


@pytest.mark.parametrize("deleted", [False, True])
def test_open_runs_are_listed_newest_first_even_if_their_conversation_was_deleted(
    database: Database, tenant_id: UUID, deleted: bool
):
    idle, busy = create(database, tenant_id), create(database, tenant_id)
    run_ids: list[UUID] = []
    for status in ("succeeded", "running", "queued"):
        with database.transaction() as tx:
            run_ids.append(add_run(tx, tenant_id, canvas_id=CANVAS, conversation_id=busy, status=status))
    if deleted:
        with database.transaction() as tx:
            conversations.delete_all(tx, tenant_id, CANVAS)

    with database.transaction() as tx:
        assert conversations.list_open_runs(tx, tenant_id, CANVAS) == [run_ids[2], run_ids[1]]
        assert conversations.list_open_runs(tx, tenant_id, CANVAS, [busy]) == [run_ids[2], run_ids[1]]
        assert conversations.list_open_runs(tx, tenant_id, CANVAS, [idle]) == []
        assert conversations.list_open_runs(tx, tenant_id, new_id()) == []
