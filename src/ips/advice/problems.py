"""What `ips check` finds: problems by their weight, and facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Weight = Literal["error", "warning", "note"]

_LISTED = 20  # problems of one kind that are listed one by one


@dataclass(frozen=True)
class Problem:
    """One sentence that names the file or line, what is wrong and what to do.

    Attributes:
        weight: an error stops or spoils a training, a warning may, a note is good to know.
        count: number of problems that the sentence stands for.
    """

    weight: Weight
    text: str
    count: int = 1


@dataclass
class Report:
    """All problems of a data set.

    Attributes:
        problems: errors first once sorted.
        facts: name and value of what is known about the data and the expected training.
    """

    problems: list[Problem] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)

    def add(self, weight: Weight, *texts: object) -> None:
        """Add problems of one kind; of many, only the first are listed."""
        self.problems += [Problem(weight, str(text)) for text in texts[:_LISTED]]
        if (more := len(texts) - _LISTED) > 0:
            self.problems.append(Problem(weight, f"{more} more of the same kind", more))

    @property
    def errors(self) -> list[str]:
        """What would stop or spoil a training."""
        return [problem.text for problem in self.problems if problem.weight == "error"]

    @property
    def error_count(self) -> int:
        """Number of errors, also of those that are not listed."""
        return sum(problem.count for problem in self.problems if problem.weight == "error")

    def ordered(self) -> list[Problem]:
        """All problems, errors first."""
        weights: list[Weight] = ["error", "warning", "note"]
        return sorted(self.problems, key=lambda problem: weights.index(problem.weight))
