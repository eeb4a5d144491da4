"""Figures as pandas frames."""

from dataclasses import replace

from tests.ui.fake_views import mid_flight
from unifiednn_core.views.run_rows import metrics_frame
from unifiednn_core.views.runs import Series


def test_metrics_have_one_row_for_each_point_with_loss_and_accuracy_beside_each_other():
    part = replace(
        mid_flight().submodels[0],
        name="net",
        loss=Series((0.5, 1.0), (3.0, 2.0)),
        accuracy=Series((0.5, 1.0), (0.1, 0.2)),
        test_loss_curve=Series((1.0,), (2.5,)),
        test_accuracy_curve=Series(),
    )
    frame = metrics_frame(replace(mid_flight(), submodels=(part,)))
    assert frame.to_csv(index=False).splitlines() == [
        "submodel,data,epoch,loss,accuracy",
        "net,train,0.5,3.0,0.1",
        "net,train,1.0,2.0,0.2",
        "net,test,1.0,2.5,",
    ]


def test_a_run_without_curves_has_an_empty_table():
    assert metrics_frame(replace(mid_flight(), submodels=())).empty
