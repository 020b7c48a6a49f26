"""Whole slides: stored patch locations, feature extraction, sharing work between processes."""
