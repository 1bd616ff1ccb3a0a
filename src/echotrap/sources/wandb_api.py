"""W&B runs online: ``wandb://ENTITY/PROJECT/RUN``, or the address of a run's page.

Read with W&B's own client. Its scan gives all rows when it is asked for no keys (with keys it would drop each row that lacks
one of them). It waits and retries by itself when the server is busy or a connection breaks; here it is only told to give up
after a while. It does not say quickly that nothing answers, so the server is probed first.

A run that is over is kept on disk (512 MB in all, in the user's cache folder), and so are its tables.
"""

from __future__ import annotations

import json
import netrc
import os
import re
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import zstandard

from echotrap.errors import EchotrapError, SourceError, Unreachable
from echotrap.sources.base import Format, Head, Note, Options, Reader, Row, choose_run
from echotrap.sources.cache import DiskCache
from echotrap.sources.jsonl import parse
from echotrap.sources.tables import LoggedTable, Table, TableStore, reward_functions, wandb_table
from echotrap.sources.wandb_file import TABLE_TYPES, flatten, leaves

__all__ = ["FORMAT", "WandbApiReader"]

T = TypeVar("T")

PROBE_SECONDS = 5
ANSWER_SECONDS = 60
CACHE_BYTES = 1 << 29
MOST_TABLES = 200  # of one key; a longer list is thinned out evenly
DOWNLOADS_AT_ONCE = 8
RUNS_LISTED = 50
OVER = {"finished", "failed", "crashed", "killed"}
LOGIN = "wandb login, or set WANDB_API_KEY"
FORM = "wandb://ENTITY/PROJECT/RUN"


class _Address(NamedTuple):
    entity: str
    project: str
    run: str | None


class WandbApiReader(Reader):
    """Follows one run on a server.

    Each poll asks for the steps after the last one only.
    """

    def __init__(self, api: Any, host: str, address: _Address) -> None:
        super().__init__("/".join(part for part in address if part))
        self._api, self._host, self._path = api, host, self.name
        self._run: Any = None
        self._last = self._promised = -1
        self._rewards: set[str] = set()
        self._logged: dict[str, LoggedTable] = {}
        self._tables = TableStore(self._discover, self.config, self._rewards, self._fetch)
        self._cache = DiskCache(_cache_folder(), CACHE_BYTES)
        self.files = [f"wandb://{self._path}"]

    def poll(self) -> Iterator[Row]:
        """Yield the rows whose W&B step is above all that were read."""
        self.rewound = False
        if self._run is None:
            self._run = self._asked(lambda: self._api.run(self._path))
        else:
            self._asked(lambda: self._run.load(force=True))
        run = self._run
        self.name = str(run.name or run.id)
        self.finished = run.state in OVER
        for key, value in dict(run.config).items():
            self.config.update(leaves(str(key), value))
        for raw in self._rows(run):
            step = raw.get("_step")
            if not isinstance(step, int | float) or step <= self._last:
                continue  # an export and the live tail may overlap
            self._last = int(step)
            values, media = flatten({key: value for key, value in raw.items() if value is not None})  # an export pads with nulls
            for key, facts in media.items():
                self._note_table(key, facts)
            self._rewards |= reward_functions(values)
            yield Row(values, line=self._last + 1)
        if self.rollouts is None:
            self._tables.refresh()
            self.rollouts = self._tables or None
        self.notes = []
        if self._last < self._promised:
            self.notes.append(Note("incomplete", f"W&B gave rows up to its step {self._last}, but has {self._promised}"))
        if run.state in OVER - {"finished"}:
            self.notes.append(Note("exit", f"W&B says that the run {run.state}"))

    def _rows(self, run: Any) -> Iterator[dict[str, Any]]:
        """Rows after the last that was read, from the cache where the run is over."""
        first = self._last < 0
        version = f"{self._host}/{self._path} {getattr(run, 'heartbeat_at', '')} {run.state}"
        if first and self.finished and (kept := self._cache.get(version)) is not None:
            yield from _unpacked(kept)
            return
        scan = self._asked(lambda: run.scan_history(min_step=self._last + 1, use_cache=False))  # the cache is ours
        self._promised = int(scan.max_step)
        rows = []
        while (row := self._asked(lambda: next(scan, None))) is not None:
            if first and self.finished:
                rows.append(row)
            yield row
        if rows:
            self._cache.put(version, _packed(rows))

    def _note_table(self, key: str, facts: dict[str, Any]) -> None:
        kind, path = facts.get("_type"), facts.get("path")
        if kind in TABLE_TYPES and isinstance(path, str):
            where = f"wandb://{self._path}/{path}"
            self._logged[where] = LoggedTable(key, self._last, where, lambda: self._table(path), TABLE_TYPES[kind])

    def _discover(self) -> Iterable[LoggedTable]:
        by_key: dict[str, list[LoggedTable]] = {}
        for table in self._logged.values():
            by_key.setdefault(table.key, []).append(table)
        for tables in by_key.values():
            stride = -(-len(tables) // MOST_TABLES)
            yield from tables[::-1][::stride]  # the newest is always among them

    def _fetch(self, tables: Sequence[LoggedTable]) -> None:
        """Bring many tables into the cache at once."""
        paths = [table.where.removeprefix(f"wandb://{self._path}/") for table in tables]
        missing = {path for path in paths if self._cache.get(self._name_of(path)) is None}
        if len(missing) > 1:
            listed = self._asked(lambda: list(self._run.files(pattern="media/table/%", per_page=500)))
            wanted = [file for file in listed if file.name in missing]
            with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
                list(pool.map(self._download, wanted))

    def _table(self, path: str) -> Table:
        data = self._cache.get(self._name_of(path))
        if data is None:
            data = self._download(self._asked(lambda: self._run.file(path)))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "table.json")
            file.write_bytes(data)
            return wandb_table(file)

    def _download(self, file: Any) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            self._asked(lambda: file.download(root=folder, replace=True)).close()
            data = Path(folder, file.name).read_bytes()
        self._cache.put(self._name_of(file.name), data)
        return data

    def _name_of(self, path: str) -> str:
        """Tables are named by a digest of their content, so a name never changes its meaning."""
        return f"{self._host}/{self._path}/{path}"

    def _asked(self, question: Callable[[], T]) -> T:
        return _asked(question, self._host, self._path)


def _asked(question: Callable[[], T], host: str, path: str) -> T:
    """Ask the client; what goes wrong becomes one line that names no key.

    Raises
    ------
    Unreachable
        Nobody answers.
    SourceError
        The server refuses.
    """
    try:
        return question()
    except EchotrapError:
        raise
    except Exception as error:  # the client raises whatever its layers raise
        text = " ".join(str(error).split())
        for word in (os.environ.get("WANDB_API_KEY"),):
            text = text.replace(word, "***") if word else text
        lowered = text.lower()
        if "no api key configured" in lowered:
            raise SourceError(f"no API key for {host}", where=path, cure=LOGIN) from None
        if "could not find" in lowered or "not found" in lowered:
            raise SourceError(
                "there is no such run, or this API key may not see it", where=path, cure=f"the form is {FORM}"
            ) from None
        if type(error).__name__ == "AuthenticationError" or "logged in" in lowered or "401" in lowered:
            raise SourceError(f"{host} does not accept the API key", where=path, cure="wandb login --relogin") from None
        if "permission" in lowered or "403" in lowered or "forbidden" in lowered:
            raise SourceError("this API key has no permission to read it", where=path) from None
        if "giving up" in lowered or "busy" in lowered or "timed out" in lowered or "connect" in lowered:
            raise Unreachable(f"{host} does not answer", where=path, cure="try again later") from None
        raise SourceError(f"W&B: {text[:300] or type(error).__name__}", where=path) from None


@cache
def _patience() -> None:
    """Tell the client, once in a process, to be quiet and to give up after half a minute instead of many minutes."""
    import wandb

    wandb.setup(
        settings=wandb.Settings(
            silent=True, x_graphql_retry_max=8, x_graphql_retry_wait_min_seconds=1, x_graphql_retry_wait_max_seconds=8
        )
    )


def _connect(path: str) -> tuple[Any, str]:
    """A client that may talk to the server, and the server's name."""
    import wandb

    _patience()
    settings = wandb.setup().settings
    base_url = str(os.environ.get("WANDB_BASE_URL") or settings.base_url).rstrip("/")
    host = urlsplit(base_url).netloc
    _probe(base_url, host, path)
    if not (
        os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE") or settings.api_key or _in_netrc(host)
    ):
        raise SourceError(f"no API key for {host}", where=path, cure=LOGIN)
    api = _asked(lambda: wandb.Api(overrides={"base_url": base_url}, timeout=ANSWER_SECONDS), host, path)
    return api, host


def _probe(base_url: str, host: str, path: str) -> None:
    """Any answer will do.

    Raises
    ------
    Unreachable
        There is none within seconds.
    """
    try:
        urllib.request.urlopen(urllib.request.Request(base_url, method="HEAD"), timeout=PROBE_SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        why = getattr(reason, "strerror", None) or reason
        raise Unreachable(f"{host} does not answer: {why}", where=path, cure="WANDB_BASE_URL names another server") from None


def _in_netrc(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or host
    for file in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        try:
            if file and {host, name} & netrc.netrc(Path(file).expanduser()).hosts.keys():
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False


def _address(location: str) -> _Address:
    """Take a location apart.

    Examples
    --------
    >>> _address("wandb://team/project/3f9a")
    _Address(entity='team', project='project', run='3f9a')
    >>> _address("https://wandb.ai/team/project/runs/3f9a/overview?nw=me")
    _Address(entity='team', project='project', run='3f9a')
    """
    parts = urlsplit(location)
    if parts.scheme == "wandb":
        words = [parts.netloc, *parts.path.split("/")]
    else:
        _check_host(parts.netloc, location)
        words = parts.path.removeprefix("/wandb/").split("/")
    words = [unquote(word) for word in words if word]
    if len(words) > 2 and words[2] == "runs":
        del words[2]
    if len(words) < 2 or not all(re.fullmatch(r"[\w.~ -]+", word) for word in words[:3]):
        raise SourceError("this names no run", where=location, cure=f"the form is {FORM}")
    return _Address(words[0], words[1], words[2] if len(words) > 2 else None)


def _check_host(host: str, location: str) -> None:
    """Refuse pages of servers that the user's key is not for: the client would send the key to whatever answers."""
    own = urlsplit(os.environ.get("WANDB_BASE_URL", "")).netloc
    if host != own and not re.fullmatch(r"(?:.+\.)?(?:wandb\.ai|forge\.coreweave\.com)", host):
        raise SourceError("this is no page of your W&B server", where=location, cure="set WANDB_BASE_URL if it is")


def _cache_folder() -> Path:
    import platformdirs

    return platformdirs.user_cache_path("echotrap") / "wandb"


def _packed(rows: Sequence[dict[str, Any]]) -> bytes:
    return zstandard.ZstdCompressor().compress("\n".join(json.dumps(row) for row in rows).encode())


def _unpacked(data: bytes) -> Iterator[dict[str, Any]]:
    for line in zstandard.ZstdDecompressor().decompress(data).split(b"\n"):
        yield parse(line)


def _sniff(head: Head) -> float:
    return 0.0


def _open(location: str, options: Options) -> WandbApiReader:
    address = _address(location)
    path = f"{address.entity}/{address.project}"
    api, host = _connect(f"{path}/{address.run}" if address.run else path)
    if address.run is not None:
        return WandbApiReader(api, host, address)
    listed = _asked(lambda: list(zip(range(RUNS_LISTED), api.runs(path, order="-created_at"), strict=False)), host, path)
    if not listed:
        raise SourceError("this project has no runs", where=path)
    names = [f"{run.name} ({run.id})" for _, run in listed]
    chosen, others = choose_run(names, options.run, path)
    reader = WandbApiReader(api, host, _Address(address.entity, address.project, str(listed[chosen][1].id)))
    reader.other_runs = others
    return reader


FORMAT = Format(
    name="wandb-online",
    title="W&B run on a server",
    sniff=_sniff,
    open=_open,
    schemes=("wandb://", "https://", "http://"),
    picks="the one that was begun last",
)
