"""Advice for a person's own images: a config from a folder or table, and a check of the data.

::

    tables.py     the images and labels of a CSV, also of CLAM and STAMP, or of sub-folders
    columns.py    which column of a table is which
    survey.py     what the files are: kind, size, channels
    cost.py       time and memory of a config on this machine
    propose.py    a value and a reason for every setting
    write.py      the config as YAML with comments
    problems.py   what `ips check` finds, and how it is printed
    check.py      all problems of the data of a config
"""
