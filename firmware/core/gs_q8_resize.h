/* Bilinear interpolation between pixels. */
#ifndef GS_Q8_RESIZE_H
#define GS_Q8_RESIZE_H

#include <stdint.h>

#define GS_Q8_RESIZE_BITS 10 /* after the binary point of a position */

typedef struct {
    const int32_t *rows; /* [height][3]: the byte offsets of the rows above and below in an image, and how many 1024ths
                            of the way to the one below it is, 0..1023 */
    const int32_t *columns; /* [width][3]: likewise, in a row */
    uint32_t images;
    uint32_t height; /* of the output */
    uint32_t width;
    uint32_t channels;
    uint32_t image_bytes; /* of the input */
} gs_q8_resize_t;

/* Halves are rounded away from zero. */
void gs_q8_resize(const gs_q8_resize_t *p, const int8_t *in, int8_t *out);

#endif
