"""The guides' commands and code are executed, in order, in a folder with the archive that they talk about.

Commands that run until they are stopped are executed without `--every`, so that they end. `NOT_RUN` lists what is not executed, with the reason.
The recipes have tests of their own, in test_guide_recipes.py.
"""

import shlex
import shutil
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rowpost.cli.app import app
from tests.support.documents import ROOT, blocks, typed_lines
from tests.support.spark.archives import ArchiveMaker
from tests.support.spark.messages import audit_row, error_row, messages

OK, FINDING = 0, 1
ORDER = "Shop.Messages.PlaceOrder, Shop"
PAGES = [page for page in sorted((ROOT / "docs" / "guides").glob("spark*.md")) if page.name != "spark-recipes.md"]
NOT_RUN = {
    "pip install": "installs packages",
    "s3a://": "needs an object store; test_object_store.py runs the commands on one",
    "spark://": "needs a cluster; test_cluster.py starts one",
    "spark-submit": "needs a program; test_cluster.py submits one",
    "python3 -m venv": "makes an environment of 700 MB",
    "environment/bin": "packs that environment",
    "export PYSPARK_PYTHON": "sets variables for the commands below it",
    "replays cancel": "needs a replay that was stopped; test_replays.py cancels one",
    "addListener": "the session would keep it; test_progress.py adds one",
    '"live/"': "needs a table of live metrics; test_merged_metrics.py makes and merges one",
}
WITH_CODE = [page for page in PAGES if any(block.language in ("console", "python") for block in blocks(page))]


@pytest.fixture(scope="module")
def made(spark, queues, tmp_path_factory) -> Path:
    """The guides' archive, and their queues with messages."""
    made = ArchiveMaker(tmp_path_factory.mktemp("guide"))
    for queue in ("audit", "error", "Sales"):
        queues.make(queue)
        queues.send(queue, [b"{}"], audit_row()[5])
    body = b'{"Customer": "Ada", "Amount": 7}'
    made.batch(
        0, [audit_row(f"m{n}", body=body, ConversationId=f"c-{n}", EnclosedMessageTypes=ORDER) for n in range(20)]
    )
    failed = [error_row("e1"), error_row("e2", **{"ExceptionInfo.ExceptionType": "TimeoutError"})]
    made.batch(1, failed, queue="error")
    return made.path


@pytest.fixture
def folder(made, tmp_path, monkeypatch) -> Path:
    """The current folder, with the files that the commands name."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "ids.txt": "m1\n",
        "names.txt": "Nobody Nowhere\n",
        "policy.yml": "rules: [{older_than: 30d, action: redact}]\n",
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "Shop.Messages.PlaceOrder.ddl").write_text("Customer STRING, Amount BIGINT")
    return tmp_path


def is_run(text: str) -> bool:
    return not any(part in text for part in NOT_RUN)


def arguments_of(line: str, folder: Path) -> list[str]:
    """The arguments of a call. It ends by itself and asks nothing, its folders are absolute, and its port is free."""
    words = shlex.split(line, comments=True)[1:]
    if "--every" in words:
        del words[words.index("--every") : words.index("--every") + 2]
    if "--prometheus" in words:
        with socket.create_server(("127.0.0.1", 0)) as found:
            words[words.index("--prometheus") + 1] = str(found.getsockname()[1])
    words = [
        f"{folder}/{word}" if word.endswith("/") else word for word in words
    ]  # the JVM has a current folder of its own
    return [*words, "--yes"] if "forget" in words else words


@pytest.fixture(scope="module")
def run_before() -> set[str]:
    """The calls of all pages so far: what a page repeats is not run again."""
    return set()


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_guides_commands_and_code_run(page, spark, made, folder, queues, run_before):
    names = {"spark": spark, "df": messages(spark, audit_row()).select("id", "headers", "body")}
    failed = {}

    for block in blocks(page):
        lines = [
            line for line in typed_lines(block) if is_run(line) and line.replace(" --every 10s", "") not in run_before
        ]
        run_before.update(line.replace(" --every 10s", "") for line in lines)
        if any(line.startswith("rowpost spark archive ") for line in lines):  # these commands make the archive
            shutil.rmtree(folder / "archive", ignore_errors=True)
        elif lines or block.language == "python":
            shutil.copytree(made, folder / "archive", dirs_exist_ok=True)
        for line in lines:
            ended = CliRunner().invoke(app, ["--env", queues.environment, *arguments_of(line, folder)])
            if ended.exit_code not in (OK, FINDING):
                failed[line] = ended.output
        if block.language == "python" and is_run(block.text):
            text = block.text.replace(
                '.format("rowpost")', f'.format("rowpost").option("environment", {queues.environment!r})'
            )
            exec(compile(text, f"<{block.name}>", "exec"), names)

    assert failed == {}


def test_what_is_not_run_is_still_in_a_guide():
    shown = "".join(block.text for page in PAGES for block in blocks(page))

    assert [part for part in NOT_RUN if part not in shown] == []
