"""Name every number that both implementations must share (SPEC.md).

This module is the single source: `codegen/spec_headers.py` writes `firmware/core/gs_spec.h` from it, and continuous
integration checks that the two agree.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

SPEC_VERSION: Final = 2
WIRE_VERSION: Final = 1

LAYERS_MAX: Final = 32
ELEMENTS_MAX: Final = 1 << 20  # numbers of a layer's output
PARAMETERS_MAX: Final = 1 << 24  # so that counts are exact as floats
CLASSES_MAX: Final = 256  # labels are bytes
MILESTONES_MAX: Final = 8
FEATURE_BYTES: Final = {0: 1, 1: 4}  # FeatureType -> bytes of one feature

NODE_ID_MAX: Final = 65533
SERVER: Final = 65534
COORDINATOR: Final = 65535

HEADER_BYTES: Final = 22
TAG_BYTES: Final = 16
KEY_BYTES: Final = 32
SEGMENT_HEADER_BYTES: Final = 16
MTU_MIN: Final = 64
MTU_MAX: Final = 65535
REPLAY_WINDOW: Final = 64

IMAGE_MAGIC: Final = 0x4D495347
IMAGE_HEADER_BYTES: Final = 16
CANONICAL_NAN: Final = 0x7FC00000

# Constants of exp and log (SPEC.md 1.7) by name, as hexadecimal floats that binary32 holds exactly. The polynomials are
# minimax fits (codegen/fit_fmath.py); LN2_HI has few enough bits that its product with any exponent is exact.
FMATH: Final[dict[str, str]] = {
    "LOG2E": "0x1.715476p+0",
    "LN2_HI": "0x1.62e000p-1",
    "LN2_LO": "0x1.0bfbe8p-15",
    "E2": "0x1.fffffcp-2",
    "E3": "0x1.555492p-3",
    "E4": "0x1.5558f2p-5",
    "E5": "0x1.1239d6p-7",
    "E6": "0x1.6a2440p-10",
    "SQRT_HALF": "0x1.6a09e6p-1",
    "L1": "0x1.555554p-1",
    "L2": "0x1.999a7ap-2",
    "L3": "0x1.2438d8p-2",
    "L4": "0x1.e2f65ep-3",
}

NORM_EPSILON: Final = "0x1.4f8b58p-17"  # 1e-5, added to the variance (SPEC.md 3.4)


class Stream(IntEnum):
    """Random streams (SPEC.md 2.3)."""

    INIT = 1
    SPLIT = 2
    BATCH = 3
    SHARE = 4
    MASK = 5
    LINK = 6
    TOPOLOGY = 7
    CHURN = 8
    MATCH = 9
    PARTITION = 10
    BANDWIDTH = 11
    DROPOUT = 12
    CORRUPT = 13
    DUPLICATE = 14
    DELAY = 15
    OVERTAKE = 16


class MessageType(IntEnum):
    """Message types (SPEC.md 10); 16 and above are data, carried over the links of the experiment."""

    HELLO = 1
    WELCOME = 2
    PROVISION = 3
    ACK = 4
    PEERS = 5
    ROUND = 6
    DONE = 7
    SYNC = 8
    COMMIT = 9
    METRICS = 10
    ERROR = 11
    STOP = 12
    SEGMENT = 16
    PULL = 17


DATA_TYPE_MIN: Final = 16


class Coding(IntEnum):
    """How a SEGMENT names its coordinates (SPEC.md 10.1)."""

    RANGE = 0
    BITMAP = 1
    DELTA = 2
    MASK = 3


class PolicyKind(IntEnum):
    """Sharing policies (SPEC.md 6)."""

    GIST = 0
    SEGMENTED_GOSSIP = 1
    GOSSIPFL = 2
    DPSGD = 3
    EPIDEMIC = 4
    TOPK = 5
    FEDAVG = 6
    LOCAL = 7


class Unit(IntEnum):
    """Groups of parameters that gist ranks (SPEC.md 6.2)."""

    PARAMETER = 0
    KERNEL = 1
    CHANNEL = 2
    LAYER = 3


class Score(IntEnum):
    """Importance of one parameter (SPEC.md 6.3)."""

    WEIGHT = 0
    UPDATE = 1
    GRADIENT = 2
    TAYLOR = 3
    FISHER = 4


class Reduce(IntEnum):
    """Importance of a unit from its parameters' scores (SPEC.md 6.3)."""

    L2 = 0
    MEAN = 1


class Spread(IntEnum):
    """How gist picks the neighbour of a send (SPEC.md 6.4)."""

    UNIFORM_WITH_REPLACEMENT = 0
    UNIFORM_WITHOUT_REPLACEMENT = 1
    BALANCED = 2
    ROUND_ROBIN = 3


class Success(IntEnum):
    """How gist weighs a sender (SPEC.md 6.9, 6.10)."""

    SENDER = 0
    EQUAL = 1
    VERIFIED = 2


class Init(IntEnum):
    """Initial weights (SPEC.md 3.2)."""

    GLOROT = 0
    HE = 1
    GIVEN = 2


class LayerKind(IntEnum):
    """Kinds of layers (SPEC.md 3.1)."""

    DENSE = 0
    CONV = 1
    NORM = 2
    POOL_MAX = 3
    POOL_AVERAGE = 4
    ADD = 5
    FLATTEN = 6
    DROPOUT = 7


class Padding(IntEnum):
    """Where windows may stand (SPEC.md 3.1)."""

    VALID = 0
    SAME = 1


class Optimizer(IntEnum):
    """How gradients move parameters (SPEC.md 3.7)."""

    SGD = 0
    ADAM = 1


class FeatureType(IntEnum):
    """Storage of one input feature (SPEC.md 3.3)."""

    U8 = 0
    F32 = 1


class LrPolicy(IntFlag):
    """Learning-rate policies (SPEC.md 8); both flags may be set."""

    CONSTANT = 0
    ADASTAIR = 1
    ADALOSS = 2


class LossReference(IntEnum):
    """What AdaLoss compares a round's loss with (SPEC.md 8)."""

    MEAN = 0
    BEST = 1
    EMA = 2


# Words of one layer (SPEC.md 3.1), all u32, in order of storage; 0 where the kind has no such option.
LAYER_WORDS: Final = (
    "kind",
    "relu",
    "outputs",  # DENSE, CONV
    "kernel_height",  # CONV, POOLs; so the next four
    "kernel_width",
    "stride_height",
    "stride_width",
    "padding",
    "groups",  # CONV, NORM
    "source",  # ADD
    "rate24",  # DROPOUT
    "frozen",  # DENSE, CONV, NORM
)

# Words of the experiment image (SPEC.md 11): name -> "u" (u32) or "f" (binary32), in order of storage.
CONFIG_WORDS: Final[dict[str, str]] = {
    "seed_lo": "u",
    "seed_hi": "u",
    "nodes": "u",
    "rounds": "u",
    "input_height": "u",
    "input_width": "u",
    "input_channels": "u",
    "layers": "u",
    **{f"layer{i}_{name}": "u" for i in range(LAYERS_MAX) for name in LAYER_WORDS},
    "init": "u",
    "batch": "u",
    "local_steps": "u",
    "optimizer": "u",
    "lr": "f",
    "momentum": "f",  # SGD
    "beta1": "f",  # ADAM; so the next two
    "beta2": "f",
    "epsilon": "f",
    "weight_decay": "f",
    "val_permille": "u",
    "eval_every": "u",
    "lr_policy": "u",
    "lr_floor": "f",
    "stair_count": "u",
    **{f"stair_at{i}": "u" for i in range(MILESTONES_MAX)},
    "stair_factor": "f",
    "loss_count": "u",
    **{f"loss_patience{i}": "u" for i in range(MILESTONES_MAX)},
    "loss_factor": "f",
    "loss_reference": "u",
    "loss_ema": "f",
    "policy": "u",
    "bits": "u",
    "error_feedback": "u",
    "segments": "u",  # gist, segmented_gossip
    "sends": "u",  # gist
    "threshold": "u",  # gist; 1 for the others
    "fifo": "u",
    "unit": "u",
    "score": "u",
    "reduce": "u",
    "score_ema": "f",
    "base": "f",  # 1: not sharpened
    "spread": "u",
    "success": "u",
    "success_base": "f",  # 1: not sharpened
    "pulls": "u",  # segmented_gossip
    "ratio24": "u",  # gossipfl
    "fanout": "u",  # epidemic
    "top": "u",  # topk: coordinates a round
    "max_norm": "f",
    "mtu": "u",
    "reassembly": "u",
    "auth": "u",
    "shard_max": "u",  # most samples a node may be given
    "peers_max": "u",  # longest peer list
    "feature_type": "u",
    "feature_scale": "f",
    "feature_offset": "f",
    "test_count": "u",
}

# Words of METRICS (SPEC.md 10.3), in order.
METRIC_WORDS: Final[dict[str, str]] = {
    "round": "u",
    "weights_crc": "u",
    "train_loss": "f",
    "val_loss": "f",
    "val_correct": "u",
    "val_count": "u",
    "test_loss": "f",
    "test_correct": "u",
    "test_count": "u",
    "lr": "f",
    "frames_sent": "u",
    "bytes_sent": "u",
    "frames_received": "u",
    "bytes_received": "u",
    "messages_merged": "u",
    "messages_evicted": "u",
    "messages_rejected": "u",
    "dropped_length": "u",
    "dropped_version": "u",
    "dropped_tag": "u",
    "dropped_peer": "u",
    "dropped_stale": "u",
    "dropped_replay": "u",
    "dropped_malformed": "u",
    "dropped_reassembly": "u",
    "dropped_garbage": "u",
    "diverged": "u",
}

# Stable error codes of the firmware core: name -> (code, text). Python raises gossamer.errors.CoreError with both.
CORE_ERRORS: Final[dict[str, tuple[int, str]]] = {
    "OK": (0, "success"),
    "ARENA": (-1, "the arena is smaller than gs_node_arena_bytes() asks for"),
    "IMAGE_MAGIC": (-2, "not an experiment image"),
    "IMAGE_LENGTH": (-3, "the experiment image is truncated or has trailing bytes"),
    "IMAGE_CRC": (-4, "the experiment image is damaged (CRC)"),
    "SPEC_VERSION": (-5, "the experiment image is of another spec version"),
    "WIRE_VERSION": (-6, "the experiment image is of another wire version"),
    "CONFIG": (-7, "a word of the experiment image is out of range"),
    "SHARD": (-8, "the shard does not fit the experiment (samples, labels or size)"),
    "STATE": (-9, "the message does not fit the node's state"),
    "PEERS": (-10, "the peer list is too long, unsorted, or names the node itself"),
    "CHECKPOINT": (-11, "no valid checkpoint of that round"),
    "FRAME": (-12, "the frame was dropped; the counters say why"),
    "MALFORMED": (-13, "bytes that no encoder of this version writes"),
    "CAPACITY": (-14, "the result does not fit the buffer given"),
    "FAULT": (-15, "the processor stopped at a fault"),
}
