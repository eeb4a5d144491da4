"""Widgets that pages share."""

from unifiednn_core.views import markup as markup
from unifiednn_core.views import wording as wording
