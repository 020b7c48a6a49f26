"""Learn from patches without labels, and store what was learnt as features."""
