"""Run by .ci/run with the Python that has only the wheel, from outside the tree: is everything in it?"""

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import echotrap
from echotrap.registry import catalogue

package = Path(echotrap.__file__).parent
assert "site-packages" in str(package), f"not the wheel: {package}"
assert len(catalogue()) >= 16, sorted(catalogue())
assert (files("echotrap") / "app" / "main.py").is_file()
assert (files("echotrap") / "app" / ".streamlit" / "config.toml").is_file()
samples = sorted(path.parent for path in Path(str(files("echotrap") / "sample_runs")).glob("*/truth.toml"))
assert samples, "no sample runs in the wheel"
command = [sys.executable, "-m", "echotrap", "check", str(samples[0]), "--fail-on", "never"]
done = subprocess.run(command, capture_output=True, text=True, check=False)
assert done.returncode == 0, done.stderr
print(f"wheel: {len(catalogue())} detectors, {len(samples)} sample runs")
