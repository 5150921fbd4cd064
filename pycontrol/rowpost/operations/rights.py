"""The rights that operations and pages need. The value of each is the procedure that the server grants."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Right"]


class Right(StrEnum):
    """A right of a login. Those of a queue are granted for each queue, the others for the database."""

    MEASURE = "queue_metrics"
    READ_BODIES = "read_bodies"
    READ_DELAYED = "browse_delayed"
    CHANGE_FAILED = "receive_message"
    CHANGE_DELAYED = "reschedule_delayed"
    PURGE = "purge_queue"
    CONTROL = "control_queue"
    CONTROL_SCHEDULE = "control_schedule"
    CANCEL = "cancel_operation"
    RESUME = "resume_operation"

    @property
    def of_queue(self) -> bool:
        """Whether the right is granted for each queue."""
        return self not in (Right.CONTROL, Right.CONTROL_SCHEDULE, Right.CANCEL, Right.RESUME)
