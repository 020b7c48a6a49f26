"""Apply one function to many items: in this process, in one of several shares, or on Ray.

`run` gives the same results, errors and progress in all three cases. An item that fails is tried
again, and then its error is the result. `Place` says where the work is done.
"""

from ips.work.place import Place
from ips.work.run import Report, run

__all__ = ["Place", "Report", "run"]
