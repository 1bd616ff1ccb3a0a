"""JSON: the report itself. Its schema is ``docs/report.schema.json``."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from echotrap.render import Result, View
from echotrap.report import Batch, Report, RunError

__all__ = ["render", "schema"]


def render(results: tuple[Result, ...], view: View) -> str:
    """One run's report as it is; several, or a run that could not be read, as a batch."""
    if len(results) == 1 and isinstance(results[0], Report):
        return results[0].model_dump_json(indent=2)
    batch = Batch(
        runs=tuple(item for item in results if isinstance(item, Report)),
        errors=tuple(item for item in results if isinstance(item, RunError)),
    )
    return batch.model_dump_json(indent=2)


def schema() -> dict[str, Any]:
    """JSON Schema of what :func:`render` gives."""
    whole = TypeAdapter(Report | Batch).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "echotrap check --format json", **whole}
