#include "gs_conv.h"

#include <string.h>

#include "gs_product.h"

/* All three products are made row by row of the picture and for a few channels at a time, side by side as the columns of two
   panels: one of the filters' taps, one of the row. */

static uint32_t group_inputs(const gs_layer_t *layer)
{
    return layer->channels / layer->option;
}

static uint32_t group_outputs(const gs_layer_t *layer)
{
    return layer->outputs / layer->option;
}

static uint32_t taps(const gs_layer_t *layer)
{
    return layer->y.kernel * layer->x.kernel;
}

static size_t greater(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t gs_conv_scratch_floats(const gs_layer_t *layer)
{
    const size_t by_outputs = (size_t)taps(layer) * group_inputs(layer) + layer->x.out;
    const size_t by_inputs = (size_t)taps(layer) * group_outputs(layer) + layer->x.in;
    return GS_PANEL_COLUMNS * greater(by_outputs, by_inputs);
}

/* Output channels first, ..., all of one group, as columns. */
typedef struct {
    uint32_t group;
    uint32_t first;
    uint32_t columns;
    uint32_t width; /* with padding */
    float *taps;    /* [k_y][k_x][inputs of the group][width]: the filters, or the gradients by them */
    float *row;     /* [x][width]: outputs, or the gradients by them */
} outputs_t;

/* Take the next output channels; `outputs` starts as zeros but for the panels. Returns false at the end. */
static bool next_outputs(const gs_layer_t *layer, outputs_t *outputs, float *scratch)
{
    const uint32_t count = group_outputs(layer);
    outputs->first += outputs->columns;
    if (outputs->first == layer->outputs) {
        return false;
    }
    outputs->group = outputs->first / count;
    outputs->columns = gs_panel_columns((outputs->group + 1) * count, outputs->first);
    outputs->width = gs_panel_width(outputs->columns);
    outputs->taps = scratch;
    outputs->row = scratch + (size_t)taps(layer) * group_inputs(layer) * outputs->width;
    return true;
}

/* Copy the channels' numbers of W, or of its gradient, to columns. */
static void load_filters(const gs_layer_t *layer, const outputs_t *outputs, const float *w)
{
    const uint32_t size = taps(layer) * group_inputs(layer);
    const uint32_t width = outputs->width;
    if (outputs->columns < width) {
        memset(outputs->taps, 0, (size_t)size * width * sizeof(float));
    }
    for (uint32_t o = 0; o < outputs->columns; ++o) {
        const float *filter = w + (size_t)(outputs->first + o) * size;
        for (uint32_t i = 0; i < size; ++i) {
            outputs->taps[(size_t)i * width + o] = filter[i];
        }
    }
}

static void store_filters(const gs_layer_t *layer, const outputs_t *outputs, float *w)
{
    const uint32_t size = taps(layer) * group_inputs(layer);
    for (uint32_t o = 0; o < outputs->columns; ++o) {
        float *filter = w + (size_t)(outputs->first + o) * size;
        for (uint32_t i = 0; i < size; ++i) {
            filter[i] = outputs->taps[(size_t)i * outputs->width + o];
        }
    }
}

/* Positions from `out` on whose windows have the same taps inside. */
static uint32_t alike(const gs_axis_t *axis, uint32_t out, gs_range_t inside)
{
    const bool whole = inside.first == 0 && inside.end == axis->kernel;
    return whole ? gs_axis_outputs(axis, axis->kernel - 1).end - out : 1;
}

/* Multiply what row y of the outputs reads with the filters, adding to the row; or, for the gradient, with the row, adding to
   the filters' panel. */
static void multiply_row(const gs_layer_t *layer, const outputs_t *outputs, const float *in, uint32_t y, bool gradient)
{
    const gs_axis_t *axis = &layer->x;
    const uint32_t inputs = group_inputs(layer);
    const size_t width = outputs->width;
    const gs_range_t k_ys = gs_axis_taps(&layer->y, y);
    for (uint32_t k_y = k_ys.first; k_y < k_ys.end; ++k_y) {
        const uint32_t y_in = y * layer->y.stride + k_y - layer->y.before;
        const float *line = in + (size_t)y_in * axis->in * layer->channels + outputs->group * inputs;
        uint32_t count;
        for (uint32_t x = 0; x < axis->out; x += count) {
            const gs_range_t k_xs = gs_axis_taps(axis, x);
            count = alike(axis, x, k_xs);
            /* With one group, the inputs of neighbouring taps are neighbours, too. */
            const uint32_t step = layer->option == 1 ? k_xs.end - k_xs.first : 1;
            for (uint32_t k_x = k_xs.first; k_x < k_xs.end; k_x += step) {
                float *row = outputs->row + x * width;
                float *filters = outputs->taps + ((size_t)k_y * axis->kernel + k_x) * inputs * width;
                const size_t next = (size_t)axis->stride * layer->channels;
                gs_product_add(&(gs_product_t){
                    .c = gradient ? filters : row,
                    .a = line + (size_t)(x * axis->stride + k_x - axis->before) * layer->channels,
                    .b = gradient ? row : filters,
                    .a_k = gradient ? next : 1,
                    .a_r = gradient ? 1 : next,
                    .c_r = width,
                    .rows = gradient ? step * inputs : count,
                    .terms = gradient ? count : step * inputs,
                    .width = outputs->width,
                });
            }
        }
    }
}

void gs_conv_forward(const gs_layer_t *layer, const float *w, const float *x, float *z, float *scratch)
{
    const uint32_t positions = layer->x.out;
    for (outputs_t outputs = {0}; next_outputs(layer, &outputs, scratch);) {
        const float *bias = w + layer->weights + outputs.first;
        load_filters(layer, &outputs, w);
        for (uint32_t y = 0; y < layer->y.out; ++y) {
            float *to = z + (size_t)y * positions * layer->outputs + outputs.first;
            for (uint32_t p = 0; p < positions; ++p) {
                for (uint32_t o = 0; o < outputs.width; ++o) {
                    outputs.row[(size_t)p * outputs.width + o] = o < outputs.columns ? bias[o] : 0.0f;
                }
            }
            multiply_row(layer, &outputs, x, y, false);
            for (uint32_t p = 0; p < positions; ++p) {
                memcpy(to + (size_t)p * layer->outputs, outputs.row + (size_t)p * outputs.width,
                       outputs.columns * sizeof *to);
            }
        }
    }
}

/* Add a sample's share to the gradient by W and b. */
static void add_gradient(const gs_layer_t *layer, const float *dz, const float *x, float *g, float *scratch)
{
    const uint32_t positions = layer->x.out;
    for (outputs_t outputs = {0}; next_outputs(layer, &outputs, scratch);) {
        load_filters(layer, &outputs, g);
        memset(outputs.row, 0, (size_t)positions * outputs.width * sizeof(float));
        for (uint32_t y = 0; y < layer->y.out; ++y) {
            const float *from = dz + (size_t)y * positions * layer->outputs + outputs.first;
            for (uint32_t p = 0; p < positions; ++p) {
                memcpy(outputs.row + (size_t)p * outputs.width, from + (size_t)p * layer->outputs,
                       outputs.columns * sizeof *from);
            }
            multiply_row(layer, &outputs, x, y, true);
        }
        store_filters(layer, &outputs, g);
    }
    float *g_bias = g + layer->weights;
    for (uint32_t p = 0; p < layer->y.out * positions; ++p) {
        for (uint32_t o = 0; o < layer->outputs; ++o) {
            g_bias[o] = g_bias[o] + dz[(size_t)p * layer->outputs + o];
        }
    }
}

/* Copy the numbers of W that multiply input channels first, ... of a group to filters[k_y][k_x][outputs of the group][width]. */
static void load_inputs(const gs_layer_t *layer, const float *w, uint32_t group, uint32_t first, uint32_t columns,
                        float *filters)
{
    const uint32_t inputs = group_inputs(layer);
    const uint32_t outputs = group_outputs(layer);
    const uint32_t width = gs_panel_width(columns);
    for (uint32_t o = 0; o < outputs; ++o) {
        const float *filter = w + (size_t)(group * outputs + o) * taps(layer) * inputs + first;
        for (uint32_t k = 0; k < taps(layer); ++k) {
            float *to = filters + ((size_t)k * outputs + o) * width;
            memcpy(to, filter + (size_t)k * inputs, columns * sizeof *to);
            memset(to + columns, 0, (width - columns) * sizeof *to);
        }
    }
}

/* Sum the gradients by row y_in of some input channels: over the outputs that read it, in their order (y, x, o). For one
   input, x ascends as the tap descends. */
static void gather_row(const gs_layer_t *layer, const float *dz, uint32_t group, uint32_t y_in, const float *filters,
                       float *row, uint32_t width)
{
    const gs_axis_t *axis = &layer->x;
    const uint32_t outputs = group_outputs(layer);
    const gs_range_t ys = gs_axis_readers(&layer->y, y_in);
    memset(row, 0, (size_t)axis->in * width * sizeof *row);
    for (uint32_t y = ys.first; y < ys.end; ++y) {
        const uint32_t k_y = y_in + layer->y.before - y * layer->y.stride;
        for (uint32_t k_x = axis->kernel; k_x-- > 0;) {
            const gs_range_t xs = gs_axis_outputs(axis, k_x);
            if (xs.first < xs.end) {
                gs_product_add(&(gs_product_t){
                    .c = row + (size_t)(xs.first * axis->stride + k_x - axis->before) * width,
                    .a = dz + ((size_t)y * axis->out + xs.first) * layer->outputs + group * outputs,
                    .b = filters + ((size_t)k_y * axis->kernel + k_x) * outputs * width,
                    .a_k = 1,
                    .a_r = layer->outputs,
                    .c_r = (size_t)axis->stride * width,
                    .rows = xs.end - xs.first,
                    .terms = outputs,
                    .width = width,
                });
            }
        }
    }
}

static void pass_down(const gs_layer_t *layer, const float *w, const float *dz, const gs_below_t *below, float *scratch)
{
    const uint32_t inputs = group_inputs(layer);
    uint32_t columns;
    for (uint32_t c = 0; c < layer->channels; c += columns) {
        const uint32_t group = c / inputs;
        columns = gs_panel_columns((group + 1) * inputs, c);
        const uint32_t width = gs_panel_width(columns);
        float *row = scratch + (size_t)taps(layer) * group_outputs(layer) * width;
        load_inputs(layer, w, group, c - group * inputs, columns, scratch);
        for (uint32_t y = 0; y < layer->y.in; ++y) {
            gather_row(layer, dz, group, y, scratch, row, width);
            for (uint32_t x = 0; x < layer->x.in; ++x) {
                gs_below_take(below, ((size_t)y * layer->x.in + x) * layer->channels + c, row + (size_t)x * width,
                              columns);
            }
        }
    }
}

void gs_conv_backward(const gs_layer_t *layer, const float *w, const float *dz, const float *x, float *g,
                      const gs_below_t *below, float *scratch)
{
    if (g) {
        add_gradient(layer, dz, x, g, scratch);
    }
    if (below) {
        pass_down(layer, w, dz, below, scratch);
    }
}
