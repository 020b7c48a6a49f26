"""Synthetic data sets: megapixel MNIST, road scenes, stained tissue."""
