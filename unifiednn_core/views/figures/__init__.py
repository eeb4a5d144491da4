"""Figures for pages and reports, in plotly's terms, in the colours of the reader's theme. Pure."""
