"""Time and memory, as ratios of arms that were measured side by side.

::

    baseline.py       the paper as written, to compare with
    cases.py          the models and images that are measured
    rounds.py         arms in turns, ratios of paired times
    peak.py           peak memory of a fresh process
    agreement.py      did two arms select the same patches
    selection.py      the select step
    stored.py         the select step over stored features: time and memory
    step.py           a whole training step
    memory.py         memory of a training step against the size of the image
    memory_step.py    that step, as a fresh process runs it
    read.py           patches per second of every reader
    machine.py        what was measured on
    figures.py        bars and lines
    report.py         JSON, picture and table of a benchmark
"""
