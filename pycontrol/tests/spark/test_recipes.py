"""The files in deploy/spark: what they name exists, and the parts fit together."""

import ast
import inspect
import re
from pathlib import Path

import yaml

from rowpost.settings.environment import load_settings
from rowpost.spark.jobs.archive import ArchiveJob

ROOT = Path(__file__).parents[3]
RECIPES = ROOT / "deploy" / "spark"
IMAGE = (RECIPES / "Containerfile").read_text(encoding="utf-8")
APPLICATION = yaml.safe_load((RECIPES / "sparkapplication.yaml").read_text(encoding="utf-8"))
#: What Python's workers need for each core, and what Spark's JVM needs besides its heap, in MB.
WORKER_MB, JVM_MB = 200, 384


def test_every_file_that_the_image_copies_exists():
    copied = re.findall(r"^COPY (?!--from)(\S+) (\S+)$", IMAGE, re.MULTILINE)

    assert {source for source, _ in copied} == {".", "deploy/environments", "deploy/spark/archive.py"}
    assert all((ROOT / source).exists() for source, _ in copied)


def test_every_extra_that_the_image_installs_is_declared():
    import tomllib

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

    assert {name for names in re.findall(r"/source\[([\w,]+)\]", IMAGE) for name in names.split(",")} <= declared.keys()


def test_the_application_starts_the_program_of_the_image():
    spec = APPLICATION["spec"]
    program = spec["mainApplicationFile"].removeprefix("local://")

    assert f"COPY deploy/spark/archive.py {program}\n" in IMAGE
    tree = ast.parse((RECIPES / "archive.py").read_text(encoding="utf-8"))
    (main,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main")
    assert len(main.args.args) - len(main.args.defaults) <= len(spec["arguments"]) <= len(main.args.args)
    called = next(
        node for node in ast.walk(main) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ArchiveJob"
    )
    assert {keyword.arg for keyword in called.keywords} <= set(inspect.signature(ArchiveJob).parameters)


def test_driver_and_executors_get_the_secret_the_environment_and_the_archive():
    spec = APPLICATION["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}

    for part in (spec["driver"], spec["executor"]):
        assert part["envFrom"] == [{"secretRef": {"name": "rowpost"}}]
        (environment,) = (each["value"] for each in part["env"] if each["name"] == "ROWPOST_ENV")
        assert (
            load_settings(str(ROOT / "deploy" / "environments" / f"{environment}.yml"), offline=True).environment
            == environment
        )
        assert {mount["name"] for mount in part["volumeMounts"]} <= volumes
        assert all(argument.startswith(part["volumeMounts"][0]["mountPath"]) for argument in spec["arguments"][1:3])


def test_memory_outside_of_the_heap_is_enough_for_pythons_workers():
    for part in (APPLICATION["spec"]["driver"], APPLICATION["spec"]["executor"]):
        overhead = int(part["memoryOverhead"].removesuffix("m"))

        assert overhead >= JVM_MB + 2 * WORKER_MB * part["cores"]


def test_no_recipe_has_a_secret():
    for file in RECIPES.iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"(?i)(password|secret|token)\s*[:=]\s*(?!\.\.\.)['\"]?\w{6,}", text), file
