"""Time and memory as ratios of arms that are measured side by side.

::

    baseline.py       the paper's algorithm in plain PyTorch, to compare with
    cases.py          models and images to measure
    timing.py         run arms alternately, ratios of paired times
    peak.py           peak memory of a new process
    comparison.py     compare arms: time, and the patches they select
    speed.py          benchmarks of the select step and of a training step
    features.py       the select step on stored features: time and memory
    memory.py         benchmark of a training step's memory against the image size
    memory_step.py    that training step, as a new process runs it
    read.py           benchmark of the image readers
    figures.py        bar and line charts
    report.py         JSON, chart and table of a benchmark
"""
