/* The arithmetic of tflite-micro's reference kernels as plain loops over plain indices: the baseline of
   inference_emulated.py. What the loops compute is not looked at, only how many instructions they take. */
#include "gs_q8.h"

typedef struct {
    int32_t in_height, in_width, in_channels, out_height, out_width, out_channels;
    int32_t height, width, stride_y, stride_x, pad_y, pad_x, multiple; /* multiple: of a depthwise convolution */
    int32_t in_offset, out_offset;
} plain_t;

static const int32_t plain_multiplier = 1518500250, plain_shift = -8;

static int8_t plain_output(int32_t sum, int32_t bias, int32_t offset)
{
    return (int8_t)gs_q8_clamp(gs_q8_rescale(sum + bias, plain_multiplier, plain_shift) + offset, -128, 127);
}

static void plain_conv(const plain_t *p, const int8_t *in, const int8_t *weights, const int32_t *bias, int8_t *out)
{
    for (int32_t y = 0; y < p->out_height; ++y) {
        for (int32_t x = 0; x < p->out_width; ++x) {
            for (int32_t c = 0; c < p->out_channels; ++c) {
                int32_t sum = 0;
                for (int32_t i = 0; i < p->height; ++i) {
                    const int32_t row = y * p->stride_y - p->pad_y + i;
                    for (int32_t j = 0; j < p->width; ++j) {
                        const int32_t column = x * p->stride_x - p->pad_x + j;
                        if (row < 0 || row >= p->in_height || column < 0 || column >= p->in_width) {
                            continue;
                        }
                        for (int32_t k = 0; k < p->in_channels; ++k) {
                            const int32_t value = in[(row * p->in_width + column) * p->in_channels + k];
                            const int32_t weight = weights[((c * p->height + i) * p->width + j) * p->in_channels + k];
                            sum += weight * (value + p->in_offset);
                        }
                    }
                }
                out[(y * p->out_width + x) * p->out_channels + c] = plain_output(sum, bias[c], p->out_offset);
            }
        }
    }
}

static void plain_depthwise(const plain_t *p, const int8_t *in, const int8_t *weights, const int32_t *bias, int8_t *out)
{
    for (int32_t y = 0; y < p->out_height; ++y) {
        for (int32_t x = 0; x < p->out_width; ++x) {
            for (int32_t k = 0; k < p->in_channels; ++k) {
                for (int32_t m = 0; m < p->multiple; ++m) {
                    const int32_t c = m + k * p->multiple;
                    int32_t sum = 0;
                    for (int32_t i = 0; i < p->height; ++i) {
                        for (int32_t j = 0; j < p->width; ++j) {
                            const int32_t row = y * p->stride_y - p->pad_y + i;
                            const int32_t column = x * p->stride_x - p->pad_x + j;
                            if (row >= 0 && row < p->in_height && column >= 0 && column < p->in_width) {
                                const int32_t value = in[(row * p->in_width + column) * p->in_channels + k];
                                const int32_t weight = weights[(i * p->width + j) * p->out_channels + c];
                                sum += weight * (value + p->in_offset);
                            }
                        }
                    }
                    out[(y * p->out_width + x) * p->out_channels + c] = plain_output(sum, bias[c], p->out_offset);
                }
            }
        }
    }
}

static void plain_dense(const plain_t *p, const int8_t *in, const int8_t *weights, const int32_t *bias, int8_t *out)
{
    for (int32_t c = 0; c < p->out_channels; ++c) {
        int32_t sum = 0;
        for (int32_t k = 0; k < p->in_channels; ++k) {
            sum += weights[c * p->in_channels + k] * (in[k] + p->in_offset);
        }
        out[c] = plain_output(sum, bias[c], p->out_offset);
    }
}
