"""The dashboard: pages and JSON over the procedures that the command line uses too.

    from rowpost.dashboard import app
    asgi = app("production")          # serve it with any ASGI server, or mount it: fastapi_app.mount("/queues", asgi)

`rowpost dashboard` serves it with uvicorn. application.py routes requests; visit.py is one of them; pages.py, forms.py
and api.py answer; the room `operations` reads and executes; monitor.py measures the queues and keeps a bounded history
in this process. It needs the extra `rowpost[dashboard]`.
"""

from rowpost.dashboard.application import app

__all__ = ["app"]
