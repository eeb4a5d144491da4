"""A tick of the page that a viewer just left must not clear the page that came after it.

Streamlit stops its timers when the page changes (streamlit/streamlit#9617), but a tick may be on its way then. Measured
with Streamlit 1.67: the browser empties the page when a run of a fragment names another page than the one shown, even
if that fragment is gone. A tick sent while the next page is being drawn does so, and the page stays empty.
"""

from streamlit.runtime.scriptrunner.script_runner import ScriptRunner
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData

_run = ScriptRunner._run_script


def drop() -> None:
    """Let every session of this server skip such runs."""
    ScriptRunner._run_script = _unless_late  # type: ignore[method-assign, assignment]


def _unless_late(self: ScriptRunner, asked: RerunData) -> None:
    late = asked.page_script_hash and asked.page_script_hash != self._pages_manager.current_page_script_hash
    if not (asked.fragment_id_queue and late):
        _run(self, asked)
