"""The dashboard's router: `streamlit run app.py`. Every screen stands in pages/ and works without this file."""

from pages._ui import screens

if __name__ == "__main__":
    screens.route()
