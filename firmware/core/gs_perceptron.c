#include "gs_perceptron.h"

#include "gs_inline.h"
#include "gs_product.h"

#if GS_LANES >= 4 && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define GS_SHUFFLES 1
#endif
#endif

#define STRIP 32u /* features that are turned into columns at a time */

/* Scratch: the output of every layer, [B][outputs] each, which on the way back give their places to the gradients by them;
   then two panels, the inputs and the outputs of a product. */
static size_t values_floats(const gs_model_t *model, uint32_t count)
{
    size_t sum = 0;
    for (uint32_t l = 0; l < model->layers; ++l) {
        sum += (size_t)count * model->layer[l].outputs;
    }
    return sum;
}

/* Rows that a panel has room for: samples, outputs or a strip of features. */
static uint32_t panel_rows(const gs_model_t *model, uint32_t count)
{
    uint32_t rows = count > STRIP ? count : STRIP;
    for (uint32_t l = 0; l < model->layers; ++l) {
        rows = model->layer[l].outputs > rows ? model->layer[l].outputs : rows;
    }
    return rows;
}

size_t gs_perceptron_scratch_floats(const gs_model_t *model, uint32_t count)
{
    return values_floats(model, count) + 2 * (size_t)GS_PANEL_COLUMNS * panel_rows(model, count);
}

/* What a layer reads: a batch (converted on the way, so that it is never held as floats), or x[B][width]. */
typedef struct {
    const float *x;
    const gs_batch_t *batch; /* where x is NULL */
    uint32_t width;
} input_t;

/* Read `count` features of sample s, from feature `from` on. */
GS_INLINE void read_features(const input_t *input, uint32_t s, uint32_t from, uint32_t count, float *restrict out)
{
    if (input->x) {
        memcpy(out, input->x + (size_t)s * input->width + from, count * sizeof *out);
    } else {
        const size_t row = gs_batch_row(input->batch, s);
        gs_samples_read(input->batch->samples, row * input->width + from, count, out);
    }
}

/* Turn four rows of part into four columns of panel. */
GS_INLINE void turn(const float *part, float *panel, uint32_t width)
{
#if GS_SHUFFLES
    typedef float quad_t __attribute__((vector_size(16)));
    quad_t rows[4];
    GS_UNROLL for (uint32_t s = 0; s < 4; ++s)
    {
        memcpy(&rows[s], part + s * STRIP, sizeof rows[s]);
    }
    const quad_t low01 = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
    const quad_t high01 = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
    const quad_t low23 = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
    const quad_t high23 = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
    const quad_t columns[4] = {
        __builtin_shufflevector(low01, low23, 0, 1, 4, 5),
        __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
        __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
        __builtin_shufflevector(high01, high23, 2, 3, 6, 7),
    };
    GS_UNROLL for (uint32_t i = 0; i < 4; ++i)
    {
        memcpy(panel + i * width, &columns[i], sizeof columns[i]);
    }
#else
    for (uint32_t i = 0; i < 4; ++i) {
        for (uint32_t s = 0; s < 4; ++s) {
            panel[i * width + s] = part[s * STRIP + i];
        }
    }
#endif
}

/* Fill panel[features][samples], samples side by side, from feature `from` of samples `first`, ... on. */
static void strip_of(const input_t *input, uint32_t first, uint32_t samples, uint32_t from, uint32_t features,
                     float *panel)
{
    float part[GS_PANEL_COLUMNS][STRIP];
    const uint32_t width = gs_panel_width(samples);
    for (uint32_t s = 0; s < width; ++s) {
        if (s >= samples) {
            memset(part[s], 0, sizeof part[s]);
        } else {
            read_features(input, first + s, from, features, part[s]);
        }
    }
    if (GS_LANES < 4) {
        for (uint32_t i = 0; i < features; ++i) {
            for (uint32_t s = 0; s < width; ++s) {
                panel[i * width + s] = part[s][i];
            }
        }
        return;
    }
    for (uint32_t s = 0; s < width; s += 4) {
        for (uint32_t i = 0; i < features; i += 4) {
            turn(&part[s][i], panel + i * width + s, width);
        }
    }
}

/* y[B][out] = W x + b, then ReLU where asked for. */
static void dense(const float *weights, const float *bias, const input_t *input, float *y, uint32_t batch,
                  uint32_t fan_out, bool relu, float *const panels[2])
{
    for (uint32_t first = 0; first < batch; first += GS_PANEL_COLUMNS) {
        const uint32_t samples = gs_panel_columns(batch, first);
        const uint32_t width = gs_panel_width(samples);
        float *z = panels[1];
        for (uint32_t o = 0; o < fan_out; ++o) {
            for (uint32_t s = 0; s < width; ++s) {
                z[(size_t)o * width + s] = bias[o];
            }
        }
        for (uint32_t from = 0; from < input->width; from += STRIP) {
            const uint32_t features = input->width - from < STRIP ? input->width - from : STRIP;
            strip_of(input, first, samples, from, features, panels[0]);
            gs_product_add(&(gs_product_t){.c = z,
                                           .a = weights + from,
                                           .b = panels[0],
                                           .a_k = 1,
                                           .a_r = input->width,
                                           .c_r = width,
                                           .rows = fan_out,
                                           .terms = features,
                                           .width = width});
        }
        for (uint32_t s = 0; s < samples; ++s) {
            for (uint32_t o = 0; o < fan_out; ++o) {
                const float value = z[(size_t)o * width + s];
                y[(size_t)(first + s) * fan_out + o] = relu && !(value > 0.0f) ? 0.0f : value;
            }
        }
    }
}

/* g[out][in] and, behind it, g[out] of a layer from dz[B][out] and its inputs (SPEC.md 3.6). */
static void gradient_of_layer(const float *dz, const input_t *input, float *g, uint32_t batch, uint32_t fan_out,
                              float *const panels[2])
{
    const uint32_t fan_in = input->width;
    for (uint32_t from = 0; from < fan_in; from += GS_PANEL_COLUMNS) {
        const uint32_t columns = gs_panel_columns(fan_in, from);
        const uint32_t width = gs_panel_width(columns);
        for (uint32_t s = 0; s < batch; ++s) {
            float *row = panels[0] + (size_t)s * width;
            read_features(input, s, from, columns, row);
            memset(row + columns, 0, (width - columns) * sizeof *row);
        }
        memset(panels[1], 0, (size_t)fan_out * width * sizeof(float));
        gs_product_add(&(gs_product_t){.c = panels[1],
                                       .a = dz,
                                       .b = panels[0],
                                       .a_k = fan_out,
                                       .a_r = 1,
                                       .c_r = width,
                                       .rows = fan_out,
                                       .terms = batch,
                                       .width = width});
        for (uint32_t o = 0; o < fan_out; ++o) {
            memcpy(g + (size_t)o * fan_in + from, panels[1] + (size_t)o * width, columns * sizeof(float));
        }
    }
    float *g_bias = g + (size_t)fan_in * fan_out;
    memset(g_bias, 0, fan_out * sizeof *g_bias);
    for (uint32_t s = 0; s < batch; ++s) {
        for (uint32_t o = 0; o < fan_out; ++o) {
            g_bias[o] = g_bias[o] + dz[(size_t)s * fan_out + o];
        }
    }
}

/* Turn the inputs x[B][in] of a layer into the gradient by what came before their ReLU, from dz[B][out]. */
static void gradient_of_input(const float *weights, const float *dz, float *x, uint32_t batch, uint32_t fan_in,
                              uint32_t fan_out, bool relu, float *const panels[2])
{
    for (uint32_t from = 0; from < fan_in; from += GS_PANEL_COLUMNS) {
        const uint32_t columns = gs_panel_columns(fan_in, from);
        const uint32_t width = gs_panel_width(columns);
        for (uint32_t o = 0; o < fan_out; ++o) {
            float *row = panels[0] + (size_t)o * width;
            memcpy(row, weights + (size_t)o * fan_in + from, columns * sizeof *row);
            memset(row + columns, 0, (width - columns) * sizeof *row);
        }
        memset(panels[1], 0, (size_t)batch * width * sizeof(float));
        gs_product_add(&(gs_product_t){.c = panels[1],
                                       .a = dz,
                                       .b = panels[0],
                                       .a_k = 1,
                                       .a_r = fan_out,
                                       .c_r = width,
                                       .rows = batch,
                                       .terms = fan_out,
                                       .width = width});
        for (uint32_t s = 0; s < batch; ++s) {
            float *inputs = x + (size_t)s * fan_in + from;
            const float *gradients = panels[1] + (size_t)s * width;
            for (uint32_t i = 0; i < columns; ++i) {
                inputs[i] = !relu || inputs[i] > 0.0f ? gradients[i] : 0.0f;
            }
        }
    }
}

float *gs_perceptron_forward(const gs_model_t *model, const float *w, const gs_batch_t *batch, float *scratch)
{
    float *const inputs = scratch + values_floats(model, batch->count);
    float *const panels[2] = {inputs, inputs + (size_t)GS_PANEL_COLUMNS * panel_rows(model, batch->count)};
    input_t input = {.batch = batch, .width = model->inputs};
    float *y = scratch;
    for (uint32_t l = 0; l < model->layers; ++l) {
        const gs_layer_t *layer = &model->layer[l];
        const float *weights = w + layer->at;
        dense(weights, weights + layer->weights, &input, y, batch->count, layer->outputs, layer->relu, panels);
        input = (input_t){.x = y, .width = layer->outputs};
        y += (size_t)batch->count * layer->outputs;
    }
    return y - (size_t)batch->count * model->classes;
}

void gs_perceptron_backward(const gs_model_t *model, const float *w, const gs_batch_t *batch, float *g, float *scratch)
{
    float *const inputs = scratch + values_floats(model, batch->count);
    float *const panels[2] = {inputs, inputs + (size_t)GS_PANEL_COLUMNS * panel_rows(model, batch->count)};
    const input_t first = {.batch = batch, .width = model->inputs};
    float *dz = inputs - (size_t)batch->count * model->classes;
    for (uint32_t l = model->layers; l-- > 1;) {
        const gs_layer_t *layer = &model->layer[l];
        const uint32_t fan_in = layer->channels;
        float *x = dz - (size_t)batch->count * fan_in;
        gradient_of_layer(dz, &(input_t){.x = x, .width = fan_in}, g + layer->at, batch->count, layer->outputs, panels);
        gradient_of_input(w + layer->at, dz, x, batch->count, fan_in, layer->outputs, model->layer[l - 1].relu, panels);
        dz = x;
    }
    gradient_of_layer(dz, &first, g, batch->count, model->layer[0].outputs, panels);
}
