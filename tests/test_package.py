"""The house stands as the plan says: packages complete, imports light, layers in one direction."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "echotrap": "src/echotrap",
    "echotrap.app": "app",
    "echotrap.detectors": "detectors",
    "echotrap.sample_runs": "sample_runs",
}
HEAVY = ("streamlit", "plotly", "wandb", "sklearn", "scipy", "pandas", "numpy", "tensorboard", "pyarrow", "typer", "rich")


def test_every_package_folder_is_listed() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = set()
    for name, folder in FOLDERS.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT / folder).parts
            if name == "echotrap.sample_runs" and parts:
                continue  # the recipes stay in the checkout
            found.add(".".join((name, *parts)))
    assert listed == found


def test_import_is_light() -> None:
    code = f"import sys, echotrap; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_exist_and_are_sorted() -> None:
    import echotrap

    assert list(echotrap.__all__) == sorted(echotrap.__all__)
    for name in echotrap.__all__:
        assert getattr(echotrap, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = echotrap.nonsense  # type: ignore[attr-defined]


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("echotrap")}


@pytest.mark.parametrize("path", sorted((ROOT / "detectors").glob("*.py")), ids=lambda path: path.stem)
def test_detectors_know_only_the_contract(path: Path) -> None:
    allowed = ("echotrap.detector", "echotrap.record", "echotrap.stats")
    assert {name for name in _imports(path) if not name.startswith(allowed)} == set()


def test_nobody_imports_the_app_or_a_detector_by_name() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        assert not {name for name in _imports(path) if name.startswith(("echotrap.app", "echotrap.detectors"))}, path


def test_renderers_do_not_judge() -> None:
    judging = ("echotrap.diagnosis", "echotrap.gates", "echotrap.verdicts", "echotrap.stats", "echotrap.signals")
    for path in (ROOT / "src/echotrap/render").glob("*.py"):
        assert not {name for name in _imports(path) if name.startswith(judging)}, path
