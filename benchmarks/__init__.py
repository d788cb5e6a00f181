"""Figures: measured, stored with commit and machine, compared as ratios."""
