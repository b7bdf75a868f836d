"""docs/use/run.md: its systemd units are sound, and its options are understood."""
import re
import subprocess

import pytest

import harness

PAGE = (harness.ROOT / "docs/use/run.md").read_text()
UNITS = re.findall(r"```ini\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: re.search(r"Description=(.*)", unit).group(1))
def test_the_units_are_sound(tmp_path, unit):
    program = re.search(r"-- (\S+)", unit).group(1)
    path = tmp_path / "leasehold-example.service"
    path.write_text(unit.replace("/usr/bin/leasehold", str(harness.CLI)))
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True)
    assert said.returncode == 0 and "leasehold-example" not in said.stderr, said.stderr
    assert "KillMode=mixed\n" in unit and program.startswith("/usr/local/bin/")


def test_both_kinds_of_units_are_there():
    assert len(UNITS) == 2 and sum("Type=oneshot" in unit and "SuccessExitStatus=3" in unit for unit in UNITS) == 1
