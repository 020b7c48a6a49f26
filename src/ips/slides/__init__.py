"""Whole slides: tissue, stored coordinates, feature extraction, work shared by processes."""
