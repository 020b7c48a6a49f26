"""Everything that can go wrong because of what a person gave us, as one tree.

    IPSError
    ├── ConfigError    a setting that is unknown, out of range or at odds with another
    ├── ImageError     an image that is missing, damaged or of a kind we do not read
    ├── PatchError     a grid or feature file that does not give the patches asked for
    ├── DataError      labels, tables and data folders
    └── RunError       a run folder that is missing, incomplete or not ours

Each message is one sentence that names the file, the value and the remedy. The command line
prints it and exits with 1; a traceback appears only with ``--debug``.
"""


class IPSError(Exception):
    """A mistake in the input, in words for the person who made it."""


class ConfigError(IPSError):
    """A setting that is unknown, out of range or at odds with another."""


class ImageError(IPSError):
    """An image that is missing, damaged or of a kind that is not read."""


class PatchError(IPSError):
    """A grid or a feature file that does not give the patches asked for."""


class DataError(IPSError):
    """Labels, tables and data folders that do not fit together."""


class RunError(IPSError):
    """A run folder that is missing, incomplete or not one of ours."""
