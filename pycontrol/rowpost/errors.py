"""Everything that rowpost raises.

    RowpostError
     ├── SettingsError            a settings file or a command's options
     ├── ContractError, HandlerNotFound  a call that the contract does not know; "module:function" leads nowhere
     ├── HandlerBrokeTransaction, HandlerEnded  a handler ended what it was lent, or used it after its end
     ├── DeployError              a deployment that was rolled back
     ├── InvalidSagaState         a saga's state that cannot be stored, or that its class does not fit any more
     ├── StartFailed              a function that an endpoint runs at the start of its worker processes raised
     ├── SparkUnavailable, SparkFailed  no pyspark, no pyarrow, no Java or wrong settings; a job of Spark or an archiver that ended before its end
     ├── OperationNotFound, OperationTaken    no operation on record under that number, or one that another process executes or that has ended
     ├── ArchiveNotFound          no archive of messages where one was named
     ├── MessageError
     │    ├── MessageCorrupt      a stored message whose headers cannot be read
     │    ├── InvalidMessage      a message that cannot be sent
     │    ├── MessageNotDeserialized  a body that is not what its type says
     │    ├── NoHandler           a message whose types nobody handles
     │    ├── Unrecoverable       raised by handlers: no retry helps (ReplyRefused: the endpoint does not reply to that address)
     │    ├── SagaInstanceMissing a message for a saga that has no such instance (SagaInstanceRequired: no retry helps)
     │    ├── DelayNotSupported   a delayed message that no delayed table can hold
     │    ├── MessageNotFound     a message that is not in its queue, or that somebody holds
     │    ├── NoReply             a request whose reply did not come in time
     │    └── UnexpectedReply     a reply of another class than the request expects
     ├── DatabaseError            carries what the server said
     │    ├── DatabaseUnavailable down, restarting, unreachable (PasswordUnavailable: the password's file or program cannot be read)
     │    ├── UnsupportedServer   too old, or behind a pooler that shares sessions
     │    ├── LoginRefused        wrong user or password, or no such database
     │    ├── PermissionDenied    the login lacks a right (QueueNotGranted 24: to the queue for which it acts)
     │    ├── SchemaMissing       rowpost was not deployed here (FeatureMissing: a feature that the environment does not declare)
     │    ├── SagaNotDeployed     a saga without a table, or whose table has lost a column
     │    ├── ParticipantFailed   another database of a transaction is out of reach, or refused
     │    └── Deadlock            victim of a deadlock, a lock timeout (LockTimeout) or a serialization failure: try again
     └── CatalogueError           raised by a procedure: number n is 51000 + n in T-SQL, SQLSTATE RPnnn in PL/pgSQL
          ├── QueueNotFound 1            ├── NotAQueueTable 9
          ├── InvalidQueueName 2         ├── InvalidDelay 10
          ├── InvalidCount 3             ├── InvalidSubscription 11
          ├── InvalidTimeToBeReceived 4  ├── LockRefused 12
          ├── QueueNameConflict 5        ├── InvalidCorrelation 14
          ├── InvalidMessages 6          ├── SagaConflict 15
          ├── ScriptEdited 7             ├── NotASagaTable 16
          ├── SchemaTooNew 8             ├── AlreadyHandled 20
          ├── AlreadyDispatched 21       ├── InvalidMessageId 22
          ├── InvalidOutboxEndpoint 23   ├── SubscriptionRefused 25
          ├── LeaseLost 35               ├── ScheduleNotFound 36
          ├── InvalidSchedule 37
          └── SpoolTaken 30, JobKeyUsed 31, InvalidJobKey 32, InvalidReport 33, ValueTooLong 34

A message says what happened, to which queue, and what to do. A test compares the catalogue's numbers with
sql/contract.yml.
"""  # noqa: E501

from typing import ClassVar

__all__ = [
    "CATALOGUE", "AlreadyDispatched", "AlreadyHandled", "ArchiveNotFound", "CatalogueError", "ContractError",
    "DatabaseError", "DatabaseUnavailable", "Deadlock", "DelayNotSupported", "DeployError", "FeatureMissing",
    "HandlerBrokeTransaction", "HandlerEnded", "HandlerNotFound", "InvalidCorrelation", "InvalidCount",
    "InvalidDelay", "InvalidJobKey", "InvalidMessage", "InvalidMessageId", "InvalidMessages",
    "InvalidOutboxEndpoint", "InvalidQueueName", "InvalidReport", "InvalidSagaState", "InvalidSchedule",
    "InvalidSubscription", "InvalidTimeToBeReceived", "JobKeyUsed", "LeaseLost", "LockRefused", "LockTimeout",
    "LoginRefused",
    "MessageCorrupt", "MessageError", "MessageNotDeserialized", "MessageNotFound", "NoHandler", "NoReply",
    "NotAQueueTable", "NotASagaTable", "OperationNotFound", "OperationTaken", "ParticipantFailed",
    "PasswordUnavailable", "PermissionDenied", "QueueNameConflict", "QueueNotFound", "QueueNotGranted",
    "ReplyRefused", "RowpostError", "SagaConflict", "SagaInstanceMissing", "SagaInstanceRequired",
    "SagaNotDeployed", "ScheduleNotFound", "SchemaMissing", "SchemaTooNew", "ScriptEdited", "SettingsError",
    "SparkFailed", "SparkUnavailable", "SpoolTaken", "StartFailed", "SubscriptionRefused", "UnexpectedReply",
    "Unrecoverable",
    "UnsupportedServer", "ValueTooLong",
]  # fmt: skip


class RowpostError(Exception):
    """Root of all errors that rowpost raises on purpose."""


class SettingsError(RowpostError):
    """The settings cannot be used: the message names the file, the key and what to write instead."""


class ContractError(RowpostError):
    """A procedure or an argument that sql/contract.yml does not know: a mistake in code, not in data."""


class HandlerNotFound(RowpostError):
    """The handler named as module:function cannot be imported."""


class HandlerBrokeTransaction(RowpostError):
    """A handler ended the transaction, or closed the connection, that the receive lent it."""


class StartFailed(RowpostError):
    """A function that an endpoint runs at its start failed. No message is received before it succeeds."""


class HandlerEnded(RowpostError):
    """A context, a bus or a connection was used after its handler or its block had ended."""


class DeployError(RowpostError):
    """A deployment failed and was rolled back: the message names file, batch and line."""


class InvalidSagaState(RowpostError):
    """A saga's state that cannot be stored as JSON, or that was stored by a class with other fields."""


class SparkUnavailable(RowpostError):
    """Spark or an archiver cannot run here: the message says what is missing, and what to do."""


class SparkFailed(RowpostError):
    """A job of Spark or an archiver failed; what it had finished stands."""


class OperationNotFound(RowpostError):
    """There is no operation on record under that number."""


class OperationTaken(RowpostError):
    """Another process executes the operation, or it has ended: this one changes nothing more."""


class ArchiveNotFound(RowpostError):
    """There is no archive of messages in that place, or nothing in it."""


class MessageError(RowpostError):
    """Something is wrong with a message."""


class MessageCorrupt(MessageError):
    """The headers of a stored message cannot be read; the message belongs into the error queue as it is."""


class InvalidMessage(MessageError):
    """The message cannot be sent as it was given."""


class MessageNotDeserialized(MessageError):
    """A body that is not what its type says: unrecoverable, it goes to the error queue at once."""


class NoHandler(MessageError):
    """A message whose types nobody handles: unrecoverable."""


class Unrecoverable(MessageError):
    """A handler raises it, or a class derived from it, to move its message to the error queue without a retry."""


class ReplyRefused(Unrecoverable):
    """A message names a reply address to which its endpoint does not reply (`reply_to`)."""


class SagaInstanceMissing(MessageError):
    """A message for a saga that has no such instance, because it never started or is complete: see the saga's
    `without_instance`.
    """


class SagaInstanceRequired(SagaInstanceMissing, Unrecoverable):
    """As SagaInstanceMissing, of a saga that does not want a retry."""


class DelayNotSupported(MessageError):
    """A delayed message that no delayed table can hold."""


class MessageNotFound(MessageError):
    """The message is not in the queue any more, or somebody holds it."""


class NoReply(MessageError):
    """A request whose reply did not come in time, or that was given up because its receiver was closed."""


class UnexpectedReply(MessageError):
    """A reply of another class than the request expects. Its handler has answered, and does not answer again."""


class DatabaseError(RowpostError):
    """The server refused a call for a reason that has no class of its own."""


class DatabaseUnavailable(DatabaseError):
    """The server cannot be reached, or the connection to it broke. Trying again later can help."""


class PasswordUnavailable(DatabaseUnavailable):
    """The password's file or program cannot be read now. Trying again later can help."""


class LoginRefused(DatabaseError):
    """The server answers but does not let this user in."""


class UnsupportedServer(DatabaseError):
    """rowpost cannot work with what answers:

    PostgreSQL before 14, SQL Server before 2016 SP1 or compatibility level 130, or a pooler that shares sessions.
    """


class PermissionDenied(DatabaseError):
    """The login lacks a right. rowpost queue grant prints the statements that give it."""


class SchemaMissing(DatabaseError):
    """This database has no rowpost schema yet: run rowpost apply."""


class FeatureMissing(SchemaMissing):
    """This database does not have a feature: the message names the line for the environment's file, and rowpost
    apply.
    """


class ParticipantFailed(DatabaseError):
    """Another database that takes part in a transaction is out of reach, or refused to begin, prepare or commit."""


class Deadlock(DatabaseError):
    """The transaction lost against another one and was rolled back; running it again is safe and right."""


class LockTimeout(Deadlock):
    """Another session held what this one needed for longer than it may wait."""


class SagaNotDeployed(DatabaseError):
    """A saga has no table or procedures in this database, or its table lost a column: run rowpost apply."""


class CatalogueError(RowpostError):
    """An error that a procedure raised by its catalogue number.

    Attributes:
        code: the catalogue number, 1 to 999.
    """

    code: ClassVar[int] = 0


class QueueNotFound(CatalogueError):
    """No such queue, or no procedures for it."""

    code = 1


class InvalidQueueName(CatalogueError):
    """The name cannot be a queue's name on this engine."""

    code = 2


class InvalidCount(CatalogueError):
    """A count, limit or batch size out of its range."""

    code = 3


class InvalidTimeToBeReceived(CatalogueError):
    """A time to be received that is not positive, or longer than 100 years."""

    code = 4


class QueueNameConflict(CatalogueError):
    """Another queue has this name, table or key."""

    code = 5


class InvalidMessages(CatalogueError):
    """The rows for send_messages are malformed."""

    code = 6


class ScriptEdited(CatalogueError):
    """A one-time script was edited after it ran."""

    code = 7


class SchemaTooNew(CatalogueError):
    """The database was deployed by a newer rowpost than this one."""

    code = 8


class NotAQueueTable(CatalogueError):
    """The table lacks a queue's columns."""

    code = 9


class InvalidDelay(CatalogueError):
    """No delay, or one of more than 100 years."""

    code = 10


class InvalidSubscription(CatalogueError):
    """A subscription without endpoint, topic or queue, or one of over 200 characters."""

    code = 11


class LockRefused(CatalogueError):
    """The lock of deployments, or of a transaction over several databases, was not granted."""

    code = 12


class InvalidCorrelation(CatalogueError):
    """A saga's correlation value that is missing, of another type, too long, or changed by a handler."""

    code = 14


class SagaConflict(CatalogueError):
    """Another message has started, changed or completed the same saga meanwhile: a retry finds it as it is then."""

    code = 15


class NotASagaTable(CatalogueError):
    """The table lacks a saga's columns."""

    code = 16


class AlreadyHandled(CatalogueError):
    """The outbox has this message already: another worker has handled it, or is just at it."""

    code = 20


class AlreadyDispatched(CatalogueError):
    """What this message caused has left its outbox already."""

    code = 21


class InvalidMessageId(CatalogueError):
    """A message id that an outbox cannot keep: empty, or of more than 200 characters."""

    code = 22


class InvalidOutboxEndpoint(CatalogueError):
    """The endpoint of an outbox is missing, or longer than 200 characters."""

    code = 23


class QueueNotGranted(CatalogueError, PermissionDenied):
    """The login may not receive from the queue for which it acts.

    `rowpost queue grant` prints the statements that give the right.
    """

    code = 24


class SubscriptionRefused(CatalogueError, PermissionDenied, Unrecoverable):
    """A Subscribe or Unsubscribe message that its receiver does not take, or may not: see
    `Endpoint(takes_subscriptions=…)`.
    """

    code = 25


class SpoolTaken(CatalogueError):
    """The queue's spool belongs to another stream: one that drains it, or will want to go on."""

    code = 30


class JobKeyUsed(CatalogueError):
    """The job key was used already, by a job of other data or of another number of parts."""

    code = 31


class InvalidJobKey(CatalogueError):
    """A job key of no or of more than 200 characters, or a part with a negative number."""

    code = 32


class InvalidReport(CatalogueError):
    """A supervisor's report, or a list of leases to renew, that is not of the contract's form, or too long."""

    code = 33


class ValueTooLong(CatalogueError):
    """A text that is longer than the column that stores it."""

    code = 34


class LeaseLost(CatalogueError):
    """The lease of a message has expired, and the message is in its queue again, or another worker has it.

    Nothing of the attempt is committed.
    """

    code = 35


class ScheduleNotFound(CatalogueError):
    """No schedule of that name is stored in the database."""

    code = 36


class InvalidSchedule(CatalogueError):
    """The due times of a schedule are not of the contract's form, or would move back."""

    code = 37


CATALOGUE: dict[int, type[CatalogueError]] = {error.code: error for error in CatalogueError.__subclasses__()}
