/* One node: a state machine that neither blocks nor owns a clock (SPEC.md 4, 6, 9, 10).

   The port calls gs_node_on_frame for every frame it received and gs_node_step as long as that returns true; the node
   answers through the port's callbacks. All memory is the caller's: the node struct and one arena.

       gs_config_t config;  gs_config_load(&config, image, image_len, &bad);
       size_t bytes = gs_node_arena_bytes(&config, NULL, NULL);
       gs_node_init(&node, id, key, &port, image, image_len, arena, bytes);
       for (;;) { while (gs_node_step(&node)) {} wait for a frame; gs_node_on_frame(&node, frame, len); } */
#ifndef GS_NODE_H
#define GS_NODE_H

#include "gs_config.h"
#include "gs_lr.h"
#include "gs_wire.h"

/* What a node needs from where it runs. `ctx` is handed back with every call. */
typedef struct {
    void *ctx;
    /* Send one frame, complete; the bytes are valid during the call. Must not call back into the node. */
    void (*send)(void *ctx, const uint8_t *frame, size_t len);
    /* Keep a checkpoint in slot 0 or 1, whole or not at all; of length 0: forget the slot. GS_OK or any error.
       May be NULL: no checkpoints. */
    gs_err_t (*kv_put)(void *ctx, uint32_t slot, const uint8_t *data, size_t len);
    /* Read a slot into `data` (room for `capacity`); returns its length, 0 for none. NULL exactly when kv_put is. */
    size_t (*kv_get)(void *ctx, uint32_t slot, uint8_t *data, size_t capacity);
    /* Note something for people; may be NULL. */
    void (*log)(void *ctx, const char *text);
} gs_port_t;

typedef struct {
    const char *name;
    size_t bytes;
} gs_arena_part_t;

#define GS_ARENA_PARTS 16u

typedef struct gs_state
    gs_state_t; /* what outlives a round: in the arena, ahead of the other parts a checkpoint holds */
typedef struct gs_peer gs_peer_t;

/* Private to the core; in the header so that the caller can place it. */
typedef struct {
    gs_config_t config;
    gs_port_t port;
    gs_hmac_key_t key;
    uint16_t id;
    uint8_t phase;
    bool sharing_done; /* DONE 0 was said in this round */
    bool welcomed;
    bool provisioned;
    bool reported;           /* `report` holds the METRICS of `round` or the one before */
    uint8_t slot;            /* the next checkpoint goes here */
    uint32_t slot_rounds[2]; /* committed in each checkpoint; 0: none */
    uint32_t round;
    uint32_t cursor; /* step or sample that the phase has come to */

    /* Arena. */
    uint8_t *arena;
    size_t arena_len;
    size_t checkpoint_bytes;
    gs_state_t *state;
    float *w;
    float *optimizer; /* NULL: nothing lives from step to step */
    float *residual;  /* NULL: no error feedback */
    float *reference; /* NULL: not topk */
    uint32_t *fifo_lens;
    uint8_t *fifo;
    gs_peer_t *peers;
    float *start;    /* also the order of units, and numerators */
    float *gradient; /* also importance, and denominators */
    float *average;  /* NULL: no score average */
    float *scratch;
    uint8_t *shard;
    uint16_t *lists; /* validation, then training samples; then the deck of the batches */
    uint8_t *policy; /* what the policy works with */
    float *fifo_weights;
    gs_reassembly_t reassembly;
    uint8_t *message; /* in the place of `scratch` */
    uint8_t *frame;
    size_t message_bytes; /* the longest message */
    size_t place_bytes;   /* of the FIFO: the longest message of data */

    /* Shard. */
    uint32_t shard_total;
    uint32_t shard_held;
    gs_samples_t samples;
    uint32_t n_val;
    uint32_t n_train;

    /* This round. */
    uint32_t batch_draw;
    float train_loss;
    float val_loss;
    uint32_t val_correct;
    float success;
    float test_loss;
    uint32_t test_correct;
    uint32_t counters[GS_METRIC_WORDS]; /* since the last METRICS; floats as bits */
    size_t report_bytes;
    uint8_t report[4 * GS_METRIC_WORDS + 8 * GS_LAYERS_MAX];
} gs_node_t;

/* Bytes of arena a node needs. `parts`, when not NULL, has room for GS_ARENA_PARTS and gets them by name. */
size_t gs_node_arena_bytes(const gs_config_t *config, gs_arena_part_t *parts, size_t *n_parts);

/* Start a node and say HELLO. The image stays in place; the arena is aligned to 8 bytes.
   Errors: those of gs_config_load, GS_ERR_ARENA. */
gs_err_t gs_node_init(gs_node_t *node, uint16_t id, const uint8_t key[GS_KEY_BYTES], const gs_port_t *port,
                      const uint8_t *image, size_t image_len, void *arena, size_t arena_len);

/* Say HELLO again, for coordinators that may come late. Nothing happens after WELCOME. */
void gs_node_hello(gs_node_t *node);

/* Take a received frame. GS_ERR_FRAME: it was dropped and counted, nothing else changed. Other errors were also told to
   the coordinator. */
gs_err_t gs_node_on_frame(gs_node_t *node, const uint8_t *frame, size_t len);

/* Do a bounded piece of work; returns whether there is more. */
bool gs_node_step(gs_node_t *node);

/* Count runs of bytes of a stream that were no frame. */
void gs_node_note_garbage(gs_node_t *node, uint32_t runs);

/* The coordinator said STOP. */
bool gs_node_stopped(const gs_node_t *node);

#endif
