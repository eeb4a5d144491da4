"""Figures for pages and reports, as `plotly.graph_objects` figures in the colours of the reader's theme. Pure."""
