import json
from pathlib import Path
from typing import Any

import pytest

from unifiednn_core.base.errors import BadInput
from unifiednn_core.scheduling.traces import read_trace
from unifiednn_core.scheduling.workloads import alone_s


def attempt(begin: str | None, end: str | None, gpus: int = 1) -> dict[str, Any]:
    times = [time and f"2017-10-07 01:{time}" for time in (begin, end)]
    return {"start_time": times[0], "end_time": times[1], "detail": [{"ip": "m1", "gpus": ["gpu0"] * gpus}]}


def philly(submitted: str, *attempts: dict[str, Any], user: str = "u1") -> dict[str, Any]:
    named = {"status": "Pass", "vc": "v", "jobid": "a", "attempts": attempts, "user": user}
    return named | {"submitted_time": f"2017-10-07 01:{submitted}"}


PHILLY = json.dumps([
    philly("11:00", attempt("12:00", "13:00", 8), attempt("14:00", "22:00")),
    philly("10:00", attempt("10:00", "11:40"), user="u2"),
    philly("09:00"),
    philly("09:00", attempt("10:00", None)),
    philly("09:00", attempt(None, "10:00")),
    philly("09:00", attempt("10:00", "20:00", gpus=4)),
])  # fmt: skip
HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
2,u1,v,1,1,1,COMPLETED,2020-06-09 18:42:00,2020-06-09 18:42:00,2020-06-09 18:52:00,600,0
1,u2,v,1,1,1,FAILED,2020-06-09 18:41:00,2020-06-09 18:41:00,2020-06-09 18:42:40,100,0
3,u2,v,4,1,1,FAILED,2020-06-09 18:41:00,2020-06-09 18:41:00,2020-06-09 18:42:40,100,0
4,u2,v,1,1,1,FAILED,2020-06-09 18:41:00,2020-06-09 18:41:00,2020-06-09 18:41:00,0,0
"""
PAI_JOBS = """j1,i1,u1,Terminated,1060.0,1660.0
j2,i2,u2,Failed,1000.0,1100.0
j3,i3,u3,Running,900.0,
"""
PAI_TASKS = """j1,worker,1.0,Terminated,1060.0,1660.0,600.0,29.3,50.0,MISC
j2,worker,1.0,Terminated,1000.0,1100.0,600.0,29.3,100.0,T4
j3,worker,2.0,Terminated,1000.0,1100.0,600.0,29.3,100.0,T4
j4,ps,1.0,Terminated,1000.0,1100.0,600.0,29.3,,
"""
HEADED = "job_name,inst_id,user,status,start_time,end_time\n" + PAI_JOBS


@pytest.mark.parametrize(
    ("content", "users"),
    [(PHILLY, ["u2", "u1"]), (HELIOS, ["u2", "u1"]), (PAI_JOBS, ["u2", "u1"]), (HEADED, ["u2", "u1"]),
     (PAI_TASKS, ["", ""])],
    ids=["Philly", "Helios", "PAI jobs", "PAI jobs with a header", "PAI tasks"],
)  # fmt: skip
def test_each_trace_gives_its_jobs_of_one_gpu_in_order_of_submission(
    tmp_path: Path, content: str, users: list[str]
) -> None:
    path = tmp_path / "trace"
    path.write_text(content, encoding="utf-8")
    jobs = read_trace(path, jobs=10)
    assert [(job.arrival_s, alone_s(job), job.owner) for job in jobs] == [(0, 100, users[0]), (60, 600, users[1])]
    assert [job.name for job in read_trace(path, jobs=1)] == ["job0000"]


@pytest.mark.parametrize(
    "content",
    ["", "a,b,c\n1,2,3\n", "[1, 2]", '{"a": 1}', "[" * 100_000, '[{"attempts": 3}]', "\x00", HELIOS.replace("600", "x"),
     HELIOS.replace("2,u1,v,1", "2,u1"), PAI_JOBS.replace("1100", "soon"), '"open\n' * 3],
    ids=range(11),
)  # fmt: skip
def test_other_files_are_refused_with_the_known_ones(tmp_path: Path, content: str) -> None:
    path = tmp_path / "trace"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        read_trace(path, jobs=10)
    [finding] = caught.value.findings
    assert finding.field == str(path)
    assert "cluster_job_log (Philly)" in finding.remedy


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.tar.gz"
    path.write_bytes(b"\x1f\x8b\x08\xff\xfe")
    with pytest.raises(BadInput, match="not a known trace"):
        read_trace(path, jobs=10)
