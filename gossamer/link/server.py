"""Be FedAvg's virtual server (SPEC.md 6.11): frames in, frames out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gossamer.spec import quant
from gossamer.spec.constants import SERVER, Coding, MessageType
from gossamer.spec.errors import FrameError, MalformedError
from gossamer.spec.merge import server_average
from gossamer.spec.messages import Segment
from gossamer.spec.nn import F32
from gossamer.spec.settings import Settings
from gossamer.spec.sharing import fragments
from gossamer.spec.wire import Reassembler, fragment_message, pack_frame, parse_frame


class Server:
    """Average the models of a round."""

    def __init__(self, settings: Settings, key: bytes | None) -> None:
        self._settings = settings
        self._key = key
        self._parameters = settings.model.parameters

    def serve(self, round_: int, frames: Sequence[bytes], present: Sequence[int]) -> list[bytes]:
        """Return the frames that answer a round's frames, for the present nodes."""
        received = self._models(frames)
        if not received:
            return []
        values = np.stack([received[src][0] for src in sorted(received)], axis=1)
        weight = np.array([received[src][1] for src in sorted(received)], np.float32)
        return self._answer(round_, server_average(values, weight), present)

    def _models(self, frames: Sequence[bytes]) -> dict[int, tuple[F32, float]]:
        reassembler = Reassembler(self._settings.nodes)
        received: dict[int, tuple[F32, float]] = {}
        for data in frames:
            try:
                frame = parse_frame(data, self._key)
                message = reassembler.take(frame)
                if message is not None and frame.type == MessageType.SEGMENT:
                    segment = Segment.parse(message)
                    fields = quant.unpack(segment.values, self._parameters, self._settings.bits)
                    values = quant.dequantize(fields, np.float32(segment.scale), self._settings.bits)
                    received[frame.src] = values, segment.weight
            except (FrameError, MalformedError):
                continue  # as a node would: what cannot be read changes nothing
        return received

    def _answer(self, round_: int, average: F32, present: Sequence[int]) -> list[bytes]:
        settings = self._settings
        scale = quant.scale_of(average, settings.bits)
        values = quant.pack(quant.quantize(average, scale, settings.bits), settings.bits)
        message = Segment(Coding.RANGE, settings.bits, 0, 1.0, float(scale), b"", values).pack()
        count = int(fragments(settings, np.asarray(len(message))))
        answers = []
        for node in present:
            first = (round_ * settings.nodes + node) * count + 1  # SPEC.md 9.4
            frames = fragment_message(
                MessageType.SEGMENT, SERVER, node, round_, first, message, settings.mtu, settings.auth
            )
            answers += [pack_frame(frame, self._key) for frame in frames]
        return answers
