# SPDX-License-Identifier: MIT
"""What tools/bench measures, and with what."""
