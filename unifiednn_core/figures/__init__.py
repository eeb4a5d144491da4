"""Views as figures: data in, plain `{data, layout}` dicts in plotly's terms out, for pages and reports alike. Pure."""
