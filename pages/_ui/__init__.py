"""What the screens share: frame, wording, signs, figures and the pieces that several of them draw."""

from unifiednn_core.views import markup as markup
from unifiednn_core.views import wording as wording
