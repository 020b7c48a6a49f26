"""Data sets: images as patch sources with their labels; ``synthetic`` has those that we draw."""
