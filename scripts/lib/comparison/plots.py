"""Draws the plots of a comparison, with matplotlib: DIRECTORY/plots/*.svg and *.png.

usage: python3 -m lib.comparison.plots DIRECTORY...
"""

from lib.comparison import chart
from lib.experiments import plots

if __name__ == "__main__":
    plots.main(chart.experiment_of, chart.read)
