"""Advice for a person's own images: a config from a folder or table, and a check of the data.

`ips init`::

    request.py     mistakes in the command, before any image is opened
    listing.py     the image and feature files below a folder
    folders.py     the images and labels of a folder: its table, or its sub-folders
    tables.py      the images and labels of a table
    neighbours.py  the tables of CLAM and STAMP
    columns.py     which column of a table is which
    targets.py     columns of numbers to predict, and of times until an event
    boxes.py       a table of boxes, and the usual size of its objects
    found.py       what all these find
    survey.py      what the files are: kind, size, channels
    cost.py        time and memory of a config on this machine
    choices.py     a setting with its reason; the settings of the tasks
    grids.py       patch size, stride and resolution
    propose.py     a value and a reason for every setting
    write.py       the config as YAML with comments
    init.py        all of this in order

`ips check`::

    examine.py     one file, opened once, and what differs between files
    check.py       all problems of the data of a config
    problems.py    what is found, and how it is printed
"""
