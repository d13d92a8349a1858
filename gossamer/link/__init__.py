"""Talk to nodes by frames: the coordinator of a run, and what carries its frames."""

from gossamer.link.coordinator import Coordinator
from gossamer.link.dialogue import Dialogue, Patience, Transport

__all__ = ["Coordinator", "Dialogue", "Patience", "Transport"]
