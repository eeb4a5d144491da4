import os

import psutil

from unifiednn_core.memory.samplers import PROCESS_PSS, GpuSampler, gpu_count, process_memory


def test_the_memory_of_this_process_is_what_the_system_says() -> None:
    sample = process_memory(os.getpid())
    resident_bytes = psutil.Process().memory_info().rss
    assert sample.source == PROCESS_PSS
    assert 0.2 * resident_bytes < sample.size_bytes <= 1.1 * resident_bytes


def test_a_machine_without_the_asked_gpu_gives_no_figures_rather_than_zero() -> None:
    assert GpuSampler(gpu_count() + 7).samples(os.getpid()) == []
