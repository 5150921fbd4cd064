"""What an Endpoint may be declared with, and why not with anything else."""

from __future__ import annotations

from rowpost.errors import SettingsError
from rowpost.settings.worker import STRATEGIES, check_batch

__all__ = ["MODES", "check_declaration"]

#: what a transaction spans, from nothing to several databases (reference 1E, seed 001)
MODES = ("none", "receive_only", "sends_atomic_with_receive", "transaction_scope")


def check_declaration(
    name: str, mode: str, strategy: str | None, limit: int | None, batch: str | int | None, *, has_outbox: bool
) -> None:
    """Refuses what no endpoint can be.

    Raises:
        SettingsError: no such mode, strategy or batch, a limit below 1, or an outbox in another mode than receive_only.
    """
    if mode not in MODES:
        raise SettingsError(f"The endpoint {name!r} has no mode {mode!r}. Use one of: {', '.join(MODES)}.")
    if strategy is not None and strategy not in STRATEGIES:
        raise SettingsError(f"The endpoint {name!r} has no strategy {strategy!r}. Use one of: {', '.join(STRATEGIES)}.")
    if limit is not None and limit < 1:
        raise SettingsError(f"The endpoint {name!r} has the limit {limit}: at least one worker always stays.")
    if batch is not None:
        check_batch(batch)
    if has_outbox:
        _refuse_other_modes(name, mode)


def _refuse_other_modes(endpoint: str, mode: str) -> None:
    """An outbox goes with receive_only and nothing else (statement 49)."""
    reasons = {
        "none": "the message is removed before it is handled, so that after a crash nobody would send what the outbox holds",
        "sends_atomic_with_receive": "what is sent commits with the removal of the message already, and would leave twice",
        "transaction_scope": "the business database commits together with the message, and needs no outbox",
    }
    if mode in reasons:
        raise SettingsError(
            f"The endpoint {endpoint!r} has an outbox and the transaction mode {mode}, in which {reasons[mode]}. "
            "An outbox needs transaction_mode='receive_only'; without one, leave out outbox=."
        )
