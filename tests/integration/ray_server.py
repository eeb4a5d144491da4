"""A server without pages, to be killed: `python -m tests.integration.ray_server HOME --ray ADDRESS`."""

import sys
import threading
from pathlib import Path

from unifiednn_core.base.paths import Home
from unifiednn_core.runtime.confinement import die_with_parent
from unifiednn_core.service.facade import Service

if __name__ == "__main__":
    die_with_parent()
    service = Service.open(Home(Path(sys.argv[1])), sys.argv)
    service.start_supervisor()
    threading.Event().wait()
