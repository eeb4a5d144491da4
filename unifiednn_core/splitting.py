"""How one data set of the library becomes two: one to train on and one to test with."""

from unifiednn_core.errors import BadInput, NotFound
from unifiednn_core.intake import client
from unifiednn_core.taking_in import TakingIn
from unifiednn_core.views.data import split_plan
from unifiednn_core.views.runs import FileView


class Splitting(TakingIn):
    """Files that are made of others of the library."""

    def split_data(
        self, sha256: str, *, test_share: float = 0.2, seed: int = 0, by_class: bool = True
    ) -> tuple[FileView, FileView]:
        """Part a data set of the library; returns the part to train on and the one to test with.

        Equal data, share and seed always give the same two files. Raises `NotFound`, and `BadInput` where it cannot be
        parted so.
        """
        plan = split_plan(test_share=test_share, seed=seed, by_class=by_class)
        held = {view.sha256: view for view in self.files() if view.kind == "data"}
        if sha256 not in held:
            raise NotFound(f"There is no data set '{sha256[:12]}' in the library.")
        filename = held[sha256].filename
        report = client.split(self.home.file(sha256), filename, plan, self.home)
        if report.train is None or report.test is None:
            raise BadInput(report.findings)
        self._remember(report.test, plan.filename("test", filename))
        self._remember(report.train, plan.filename("train", filename))
        views = {view.sha256: view for view in self.files()}
        return views[report.train.sha256], views[report.test.sha256]
