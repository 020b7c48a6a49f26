"""Fuzzing of every kind of file that `ips` reads: ``python -m fuzz``.

::

    __main__.py     the command: options, progress, table, exit code
    family.py       what a family is: valid files, a reader, and what may go unnoticed
    families.py     the list of all families
    images.py       families of images and slides
    features.py     families of HDF5 files: features, coordinates, tissue
    tables.py       families of text: labels, configs, annotations, logs
    downloads.py    families of data sets: archives, MNIST, megapixel MNIST
    runs.py         families of run folders: models, checkpoints, weights, logs
    caches.py       families of journals and caches: scores, answers, states of slides
    corrupt.py      damage of any bytes: flips, truncation, zeros, splices, extreme integers
    text.py         hostile tokens in YAML, JSON, CSV and XML
    formats.py      edits that keep a format intact: TIFF tags, zip members, headers
    hdf5.py         the same for HDF5: attributes, shapes, links
    child.py        read a batch of files in a forked child, within limits of time and memory
    seeds/          files that once failed, by family
"""
