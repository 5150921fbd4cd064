"""A deployment as somebody reads it: each template once, and for each queue its names and the hash of its templates.

The script of a plan repeats 1,600 lines for each queue, of which only the names differ. Two queues with the same hash
have the same text, apart from the names. `read_entry` has the whole text of one queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap

from rowpost.database.dialects.choice import dialect_for
from rowpost.deploy.by_hand import heading
from rowpost.deploy.entries import Entry, ScheduleEntry
from rowpost.deploy.plan import Plan, title_of
from rowpost.deploy.scripts import hash_text
from rowpost.deploy.steps import ScriptStep
from rowpost.errors import DeployError

__all__ = ["read_entry", "read_plan", "template_hash"]

#: characters of a hash that is shown beside its text
_SHORT = 16


def read_plan(plan: Plan) -> str:
    """Return the text of a whole plan. It has the hash of the plan's script, and cannot be run."""
    return "".join(_pieces(plan))


def read_entry(plan: Plan, name: str) -> str:
    """Return the scripts of one queue, saga or table of subscriptions as they run.

    Raises DeployError if the plan has no such entry.
    """
    found = [each for each in plan.entries if name in (each.name, each.title)]
    if not found:
        known = ", ".join(each.name for each in plan.entries) or "none"
        raise DeployError(f"The environment {plan.environment} has no queue {name!r}. It has: {known}.")
    steps = [step for entry in found for step in _steps_of(plan, entry)]
    return _header(plan, f"The scripts of {found[0].title} as they run, without its entry in the registry.") + "".join(
        f"{heading(title_of(plan, step))}{step.text.strip()}\n" for step in steps
    )


def template_hash(steps: Iterable[ScriptStep]) -> str:
    """Return the SHA-256 of the templates of some scripts in their order, hexadecimal."""
    return hash_text("\n".join(f"{_file(step)} {hash_text(str(step.template))}" for step in steps))


def _pieces(plan: Plan) -> Iterator[str]:
    yield _header(
        plan,
        "This text is read and cannot be run: it has each template once. Below, each queue has its names, which stand "
        "in the place of {queue_table} and the like, and the hash of its templates: queues with the same hash have the "
        "same text, apart from the names. Each queue is also entered in the registry, and each script in the journal.",
    )
    sets = {template_hash(_steps_of(plan, entry)): _steps_of(plan, entry) for entry in plan.entries}
    for step in plan.steps:
        if step.owner is None:
            yield f"{heading(title_of(plan, step))}{step.text.strip()}\n"
    templates = {(_file(step), str(step.template)): step for steps in sets.values() for step in steps}
    for (file, text), step in templates.items():
        yield f"{heading(f'template {file} ({step.kind}), {hash_text(text)[:_SHORT]}')}{text.strip()}\n"
    for found, steps in sets.items():
        yield f"{heading(f'templates {found[:_SHORT]}')}"
        yield "".join(f"--   {_file(step)}, {hash_text(str(step.template))[:_SHORT]}\n" for step in steps)
    yield heading("queues, sagas, tables of subscriptions and schedules")
    for entry in plan.entries:
        yield _names(plan, entry)


def _names(plan: Plan, entry: Entry) -> str:
    names = {} if isinstance(entry, ScheduleEntry) else entry.placeholders(dialect_for(plan.engine))
    options = {name: value for name, value in entry.record.items() if name not in names and value is not None}
    shown = ", ".join(f"{name} {str(value).replace(chr(10), ' ')}" for name, value in {**names, **options}.items())
    steps = _steps_of(plan, entry)
    found = f"templates {template_hash(steps)[:_SHORT]}" if steps else "no templates"
    return f"-- {' '.join(entry.title.split())}: {found}\n--   {shown}\n"


def _steps_of(plan: Plan, entry: Entry) -> list[ScriptStep]:
    return [step for step in plan.steps if step.owner == entry.title]


def _file(step: ScriptStep) -> str:
    return step.script_name.partition(".sql:")[0] + ".sql"


def _header(plan: Plan, about: str) -> str:
    lines = (
        f"rowpost {plan.tool_version}: deployment of the environment {plan.environment} ({plan.engine})",
        f"Plan {plan.hash}: the hash of the script that plan --sql prints",
        *wrap(about, 100),
    )
    return "".join(f"-- {line}\n" for line in lines)
