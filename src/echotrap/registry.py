"""The only door to the detectors: the built-in catalogue, entry points of other packages, folders that the user names."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

from echotrap.detector import Detector
from echotrap.errors import DetectorError

__all__ = ["SECTIONS", "catalogue", "story"]

CATALOGUE = "echotrap.detectors"
ENTRY_POINTS = "echotrap.detectors"
SECTIONS = (
    "What it looks at",
    "Why it matters",
    "How it decides",
    "Example",
    "False positives",
    "What to do",
    "References",
)


@cache
def _built_in() -> dict[str, tuple[Detector, ModuleType]]:
    package = importlib.import_module(CATALOGUE)
    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_"))
    return dict(_checked(importlib.import_module(f"{CATALOGUE}.{name}"), name) for name in names)


def catalogue(folders: Iterable[Path] = ()) -> Mapping[str, Detector]:
    """All detectors by id: built-in, installed, and those in ``folders`` (whose code is executed).

    Raises
    ------
    DetectorError
        A module is malformed, an id is taken, or a folder does not exist.
    """
    return {name: detector for name, (detector, _) in _all(tuple(folders)).items()}


def story(detector_id: str, folders: Iterable[Path] = ()) -> str:
    """The docstring of a detector's file: what ``echotrap explain`` prints."""
    found = _all(tuple(folders))
    if detector_id not in found:
        raise unknown(detector_id, found)
    return (found[detector_id][1].__doc__ or "").strip()


def unknown(detector_id: str, known: Iterable[str]) -> DetectorError:
    """The error for an id that no detector has, with the nearest one that does."""
    import difflib

    near = difflib.get_close_matches(detector_id, list(known), n=1, cutoff=0.65)
    cure = f"did you mean {near[0]}?" if near else "echotrap detectors lists them"
    return DetectorError(f"no detector is called {detector_id!r}", cure=cure)


def _all(folders: tuple[Path, ...]) -> dict[str, tuple[Detector, ModuleType]]:
    found = dict(_built_in())
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            module = point.load()
        except Exception as error:
            owner = point.dist.name if point.dist else "an installed package"
            raise DetectorError(f"detector {point.name!r} of {owner} cannot be imported: {error}") from error
        _add(found, module, point.name.replace("-", "_"))
    for folder in folders:
        if not folder.is_dir():
            raise DetectorError("no such folder of detectors", where=str(folder))
        for file in sorted(folder.glob("*.py")):
            if not file.name.startswith("_"):
                _add(found, _load(file), file.stem)
    return found


def _add(found: dict[str, tuple[Detector, ModuleType]], module: ModuleType, name: str) -> None:
    key, value = _checked(module, name)
    if key in found:
        raise DetectorError(f"two detectors are called {key!r}", where=str(module.__file__), cure="rename one")
    found[key] = value


def _load(file: Path) -> ModuleType:
    name = f"_echotrap_user_detectors.{file.stem}_{abs(hash(file.resolve()))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise DetectorError("not a Python file", where=str(file))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise DetectorError(f"cannot be imported: {type(error).__name__}: {error}", where=str(file)) from error
    return module


def _checked(module: ModuleType, name: str) -> tuple[str, tuple[Detector, ModuleType]]:
    where = str(module.__file__)
    detector = getattr(module, "DETECTOR", None)
    if not isinstance(detector, Detector):
        raise DetectorError("the file does not end with DETECTOR = Detector(...)", where=where)
    expected = name.replace("_", "-")
    if detector.card.id != expected:
        raise DetectorError(f"the card says {detector.card.id!r}, the file name {expected!r}", where=where)
    missing = [section for section in SECTIONS if f"{section}\n" not in (module.__doc__ or "")]
    if missing:
        raise DetectorError(f"its docstring lacks: {', '.join(missing)}", where=where)
    return detector.card.id, (detector, module)
