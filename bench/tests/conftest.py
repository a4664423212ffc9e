import os
import subprocess
import sys

import pytest

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, BENCH)


@pytest.fixture(scope="session")
def programs():
    """Compiles the peers' programs, as far as their libraries are installed."""
    subprocess.run([os.path.join(BENCH, "setup_peers.sh"), "programs"], check=False,
                   stdout=subprocess.DEVNULL)
