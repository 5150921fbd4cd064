"""A call of each procedure of the contract, for tests of what holds for all of them."""

from uuid import UUID

from rowpost.settings.environment import SagaSettings
from rowpost.wire.message import OutgoingMessage

__all__ = ["CALLS", "ID", "SAGA"]

ID = UUID("aaaaaaaa-0000-0000-0000-000000000001")
HANDLED = {"endpoint": "Sales", "message_id": "m-1"}
SUBSCRIPTION = {"endpoint": "Shop", "topic": "Shop.OrderPlaced"}
ENTRY = {
    "queue_key": "New", "queue_name": "New", "schema_name": "app", "table_name": "New",
    "kind": "own", "body_string": False, "clustered": True, "delayed": False,
}  # fmt: skip
SAGA = SagaSettings("EverySaga", "Key", transitional="Other", transitional_type="string")
SAGA_ENTRY = {
    "saga_key": "New", "saga_name": "New", "schema_name": "app", "table_name": "New", "correlation_name": "Key", "correlation_type": "string",
}  # fmt: skip
OTHER_ID = UUID("aaaaaaaa-0000-0000-0000-000000000002")
VERSIONS = {"persistence_version": "1", "saga_type_version": "1"}
#: a call of each procedure that changes what it can change; for a queue's own, of the queue Sales, for a saga's, of the saga EverySaga
CALLS = {
    "queue": {
        "send_message": {"headers": "{}", "body": b"x"},
        "send_messages": {"messages": [OutgoingMessage(b"x")]},
        "receive_messages": {"count": 1},
        "receive_message": {"row_version": "the first"},
        "peek_queue": {"count": 10},
        "watch_queue": {"count": 10, "wake_up_ttl_ms": 1000},
        "browse_messages": {"count": 10},
        "purge_queue": {"count": 10},
        "purge_expired": {"count": 10},
        "delay_message": {"headers": "{}", "delay_ms": 60_000},
        "move_due_messages": {"count": 10},
        "receive_due_messages": {"count": 10},
        "queue_metrics": {},
        "maintain_queue": {},
        "describe_stream": {},
        "list_writers": {},
        "describe_backlog": {"above": 0, "count": 1000},
        "read_range": {"above": 0, "upto": 2**62, "headers_contain": "{"},
        "move_to_spool": {"owner": "stream-1", "count": 10},
        "confirm_spool": {"owner": "stream-1"},
        "read_spool": {"above": 0, "upto": 2**62},
        "drop_spool": {"owner": "stream-1", "upto": 2**62},
        "describe_spool": {},
        "send_staged": {"job_key": "job-1", "attempts": ["try-1"]},
    },
    "saga": {
        "load_saga": {"correlation_value": "A", "locked": True, "lock_timeout_ms": 100},
        "insert_saga": {"id": OTHER_ID, "correlation_value": "B", "data": "{}", "metadata": "{}", **VERSIONS},
        "update_saga": {"id": ID, "concurrency": 1, "data": '{"x": 1}', **VERSIONS},
        "complete_saga": {"id": ID, "concurrency": 1},
        "correlate_saga": {"id": ID, "correlation_value": "second"},
        "correlate_sagas": {"count": 10},
        "list_sagas": {"count": 10},
    },
    "database": {
        "register_queue": ENTRY,
        "unregister_queue": {"queue_name": "Billing"},
        "list_queues": {},
        "check_queue": {"queue_name": "Sales"},
        "acquire_queue": {"queue_name": "Sales"},
        "renew_lease": {"queue_name": "Sales", "seconds": 10},
        "send_message": {"queue_name": "Sales", "headers": "{}", "body": b"x"},
        "receive_messages": {"queue_name": "Sales", "count": 1},
        "send_unregistered": {"schema_name": "the default", "table_name": "Sales", "headers": "{}"},
        "record_failure": {"queue_key": "Sales", "id": ID},
        "forget_failure": {"queue_key": "Sales", "id": ID},
        "subscribe": {**SUBSCRIPTION, "queue_address": "Sales"},
        "unsubscribe": SUBSCRIPTION,
        "take_subscription": {**SUBSCRIPTION, "publisher": "Sales", "queue_address": "Sales", "ends": False},
        "list_subscriptions": {},
        "register_subscription_table": {"table_key": "New", "display_name": "New", "schema_name": "app", "table_name": "New"},
        "unregister_subscription_table": {"table_key": "Other"},
        "list_subscription_tables": {},
        "send_to_subscriber": {"schema_name": "the default", "table_name": "Sales", "headers": "{}"},
        "publish_message": {"topics": ["Shop.OrderPlaced"], "headers": "{}"},
        "record_decision": {"queue_key": "Sales", "transaction_id": "tx-1", "participants": "[]"},
        "probe_transaction": {"transaction_id": "tx-1"},
        "forget_decision": {"transaction_id": "tx-1"},
        "list_decisions": {},
        "find_handled": HANDLED,
        "record_handled": HANDLED,
        "store_operations": {**HANDLED, "operations": "[]"},
        "settle_operations": HANDLED,
        "list_undispatched": {"seconds": 0, "count": 10},
        "clean_outbox": {"retention_seconds": 0, "count": 10},
        "outbox_status": {},
        "record_dispatch": HANDLED,
        "forget_dispatch": HANDLED,
        "clean_dispatches": {"retention_seconds": 0, "count": 10},
        "elect": {"duty": "maintenance"},
        "claim_ledger": {"job_key": "job-1", "part": 0, "parts": 2},
        "settle_ledger": {"job_key": "job-1", "part": 0, "messages": 1, "digest": "d"},
        "complete_ledger": {"job_key": "job-1", "parts": 1},
        "stage_messages": {"job_key": "job-1", "attempt": "try-1", "messages": [OutgoingMessage(b"x")]},
        "drop_staged": {"job_key": "job-1"},
        "register_saga": SAGA_ENTRY,
        "unregister_saga": {"saga_key": SAGA.name},
        "list_saga_types": {},
        "record_script": {"script_name": "x.sql", "script_kind": "anytime", "script_hash": "a" * 64},
        "forget_script": {"script_name": "grants.sql"},
        "list_scripts": {},
        "list_unmanaged_objects": {},
        "get_definition": {"object_name": "rowpost.get_version"},
        "record_version": {"schema_version": 9999, "tool_version": "9.9"},
        "get_version": {},
        "record_feature": {"environment": "shop", "feature": "spark"},
        "forget_feature": {"environment": "local", "feature": "spark"},
        "list_features": {},
        "has_rows": {"script_name": "tables/004_queue.sql"},
    },
}
