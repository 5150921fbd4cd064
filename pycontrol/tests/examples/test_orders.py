"""The example with FastAPI and SQLAlchemy: requests over ASGI, and the worker as `rowpost run` starts it."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[3]
ENVIRONMENT = ROOT / "examples" / "orders" / "orders.yml"


@pytest.fixture
def rowpost(embedded_url, data_folder, monkeypatch):
    """Runs rowpost in the tests' own data folder."""
    monkeypatch.setenv("ROWPOST_DATA", str(data_folder))

    def run(*arguments: str) -> None:
        path = os.pathsep.join([str(ROOT / "pycontrol"), str(ROOT)])
        ended = subprocess.run(
            [sys.executable, "-m", "rowpost", "--env", str(ENVIRONMENT), *arguments],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr

    return run


def test_an_order_is_placed_over_http_and_accepted_by_the_worker(rowpost):
    sys.modules.pop("examples.orders.app", None)
    from examples.orders import app

    rowpost("apply", "--yes")

    async def place() -> list[int]:
        async with (
            app.lifespan(app.api),
            httpx.AsyncClient(transport=httpx.ASGITransport(app.api), base_url="http://localhost") as client,
        ):
            async with app.api.state.engine.begin() as connection:
                await connection.run_sync(app.Base.metadata.drop_all)
                await connection.run_sync(app.Base.metadata.create_all)
            first = await client.put("/orders/1?product=tea")
            again = await client.put("/orders/1?product=tea")
            return [first.status_code, again.status_code]

    async def state() -> dict:
        async with (
            app.lifespan(app.api),
            httpx.AsyncClient(transport=httpx.ASGITransport(app.api), base_url="http://localhost") as client,
        ):
            return (await client.get("/orders/1")).json()

    assert asyncio.run(place()) == [202, 409]
    assert asyncio.run(state()) == {"product": "tea", "state": "placed"}
    rowpost("run", "--until-idle")
    assert asyncio.run(state()) == {"product": "tea", "state": "accepted"}
