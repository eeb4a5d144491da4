"""Where `LiveBytes` was; it is in `techniques.live_bytes`."""

from unifiednn_core.techniques.live_bytes import LiveBytes as LiveBytes
