"""A loopback server that answers what the real W&B client asks when it reads a run: GraphQL, parquet exports, files.

It knows one project. Faults are queued per GraphQL operation and are answered before the truth: a status code, or ``"drop"`` to
close the connection without an answer.
"""

from __future__ import annotations

import base64
import io
import json
import re
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

KEY = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class ServedRun:
    """A run as the server holds it: exported rows as parquet, newer ones live."""

    history: list[dict[str, Any]]
    config: dict[str, Any] = field(default_factory=dict)
    state: str = "finished"
    exported: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    name: str = "grpo-served"

    @property
    def last_step(self) -> int:
        return max((row["_step"] for row in self.history), default=-1)


class WandbServer(ThreadingHTTPServer):
    """Serve runs on a free port of the loopback interface, in a thread."""

    daemon_threads = True

    def __init__(self, runs: dict[str, ServedRun], key: str = KEY) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.runs, self.key = runs, key
        self.faults: dict[str, deque[int | str]] = defaultdict(deque)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def count(self, operation: str) -> int:
        return sum(name == operation for name, _ in self.asked)

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self.thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WandbServer

    def log_message(self, *args: Any) -> None: ...

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        kind, _, rest = self.path.lstrip("/").partition("/")
        name, _, path = rest.partition("/")
        self.server.asked.append((f"GET {kind}", {"path": rest, "range": self.headers.get("Range")}))
        if self._fault(kind):
            return
        run = self.server.runs.get(name)
        if kind == "parquet" and run:
            self._send(200, _parquet(run.history[: run.exported]), "application/octet-stream")
        elif kind == "files" and run and path in run.files:
            self._send(200, run.files[path], "application/octet-stream")
        else:
            self._send(404, b"{}")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/graphql":
            self._send(200, b"{}")  # telemetry
            return
        request = json.loads(body)
        operation = re.search(r"query\s+(\w+)", request["query"])
        name, variables = operation[1] if operation else "?", request.get("variables") or {}
        self.server.asked.append((name, variables))
        if self._fault(name):
            return
        token = base64.b64encode(f"api:{self.server.key}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {token}":
            self._send(401, b'{"errors": [{"message": "user is not logged in"}]}')
            return
        self._send(200, json.dumps({"data": self._answer(name, variables)}).encode())

    def _fault(self, name: str) -> bool:
        queue = self.server.faults[name]
        if not queue:
            return False
        fault = queue.popleft()
        if fault == "drop":
            self.close_connection = True
            self.connection.close()
        elif fault == 429:
            self._send(429, b"{}", headers={"Retry-After": "1", "RateLimit-Remaining": "0", "RateLimit-Reset": "1"})
        else:
            self._send(int(fault), b'{"errors": [{"message": "no permission"}]}')
        return True

    def _answer(self, name: str, variables: dict[str, Any]) -> dict[str, Any]:
        viewer = {"id": "u", "entity": "team", "username": "me", "email": "", "flags": "{}", "teams": {"edges": []}}
        if name in ("Viewer", "GetDefaultEntity"):
            return {"viewer": viewer}
        if name == "Runs":
            edges = [{"node": self._run(run_id, run, "Run", {}), "cursor": run_id} for run_id, run in self.server.runs.items()]
            page = {"edges": edges, "pageInfo": {"endCursor": None, "hasNextPage": False}}
            return {"project": {"internalId": "1", "runCount": len(edges), "readOnly": False, "runs": page}}
        if variables.get("project") != "project" or variables.get("entity") != "team":
            return {"project": None}
        run_id = variables.get("name") or variables.get("runName") or variables.get("run")
        run = self.server.runs.get(str(run_id))
        if run is None:
            return {"project": {"run": None}}
        return {"project": {"internalId": "1", "run": self._run(str(run_id), run, name, variables)}}

    def _run(self, run_id: str, run: ServedRun, name: str, variables: dict[str, Any]) -> dict[str, Any]:
        keys = {"lastStep": run.last_step, "keys": {key: {} for row in run.history for key in row}}
        if name == "RunHistoryKeys":
            return {"historyKeys": keys}
        if name == "RunParquetHistory":
            urls = [f"{self.server.url}/parquet/{run_id}/0.parquet"] if run.exported else []
            return {"parquetHistory": {"parquetUrls": urls, "liveData": run.history[run.exported :]}}
        if name == "HistoryPage":
            inside = range(int(variables["minStep"]), int(variables["maxStep"]))
            return {"history": [json.dumps(row) for row in run.history if row["_step"] in inside]}
        if name == "RunFiles":
            wanted, pattern = variables.get("fileNames") or [], (variables.get("pattern") or "").replace("%", ".*")
            names = [path for path in run.files if (path in wanted if wanted else re.fullmatch(pattern or ".*", path))]
            edges = [
                {"node": {"id": path, "name": path, "sizeBytes": len(run.files[path]), "mimetype": "", "md5": "", "updatedAt": "",
                          "url": f"{self.server.url}/files/{run_id}/{path}",
                          "directUrl": f"{self.server.url}/files/{run_id}/{path}"}, "cursor": path}
                for path in names
            ]  # fmt: skip
            return {"fileCount": len(names), "files": {"edges": edges, "pageInfo": {"endCursor": None, "hasNextPage": False}}}
        return {
            "projectId": 1, "id": run_id, "tags": [], "name": run_id, "displayName": run.name,
            "sweepName": None, "state": run.state,
            "config": json.dumps({key: {"value": value} for key, value in run.config.items()}), "group": None, "jobType": None,
            "commit": None, "readOnly": False, "createdAt": "2026-11-30T19:00:00", "heartbeatAt": "2026-11-30T19:00:00",
            "description": "", "notes": "", "systemMetrics": "{}", "summaryMetrics": "{}", "historyLineCount": len(run.history),
            "user": {"name": "me", "username": "me"}, "historyKeys": keys,
        }  # fmt: skip

    def _send(self, status: int, body: bytes, kind: str = "application/json", headers: dict[str, str] | None = None) -> None:
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        whole = len(body)
        if span and status == 200:
            first, last = int(span[1]), min(int(span[2] or whole - 1), whole - 1)
            status, body = 206, body[first : last + 1]
            headers = {"Content-Range": f"bytes {first}-{last}/{whole}"}
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Accept-Ranges": "bytes",
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    names = list(dict.fromkeys(key for row in rows for key in row))
    out = io.BytesIO()
    pq.write_table(pa.table({name: pa.array([row.get(name) for row in rows]) for name in names}), out)
    return out.getvalue()
