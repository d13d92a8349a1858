/* Nodes inside another process, by plain function calls: the simulator's fast engine.

   Distinct nodes may be used from distinct threads at the same time. Everything between the two markers is also read by
   cffi, which knows no preprocessor. */
#ifndef GS_NATIVE_H
#define GS_NATIVE_H

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
typedef struct gs_native gs_native_t;

/* Start a node; the image must stay in place until gs_native_close. `key` has 32 bytes. NULL: *err tells why (gs_err_t,
   or 1 where memory is short). Checkpoints that a node shall continue from are given before, as slots of `len` bytes
   (0: empty). */
gs_native_t *gs_native_open(uint16_t id, const uint8_t *key, const uint8_t *image, size_t image_len,
                            const uint8_t *slot0, size_t slot0_len, const uint8_t *slot1, size_t slot1_len, int *err);
void gs_native_close(gs_native_t *node);

/* Take frames, each after its length as a little-endian u32, and work until nothing is left to do. */
void gs_native_run(gs_native_t *node, const uint8_t *frames, size_t len);

/* The frames sent since the last gs_native_clear, in the same form. */
const uint8_t *gs_native_sent(const gs_native_t *node, size_t *len);
void gs_native_clear(gs_native_t *node);

/* The checkpoint in slot 0 or 1. */
const uint8_t *gs_native_slot(const gs_native_t *node, uint32_t slot, size_t *len);

const float *gs_native_weights(const gs_native_t *node, size_t *count);

/* Bytes of arena for an image, 0 for a bad one; writes lines "bytes name" of its parts to `text`. */
size_t gs_native_arena(const uint8_t *image, size_t image_len, char *text, size_t text_len);

const char *gs_native_error(int err);
/* cffi: end */

#endif
