#include "gs_nn.h"

#include <stdbool.h>
#include <string.h>

#include "gs_math.h"
#include "gs_rng.h"

/* Independent outputs side by side: as many as the machine's vectors hold. How many changes speed, never results,
   because every output still adds its own terms in order. A build may set it to 1, 2, 4, ... */
#ifndef GS_LANES
#if defined(__GNUC__) && defined(__AVX512F__)
#define GS_LANES 16u
#elif defined(__GNUC__) && defined(__AVX__)
#define GS_LANES 8u
#elif defined(__GNUC__) && (defined(__SSE2__) || defined(__ARM_NEON))
#define GS_LANES 4u
#else
#define GS_LANES 1u
#endif
#endif

#define LANES ((uint32_t)GS_LANES)

#if GS_LANES > 1
typedef float gs_lanes_t __attribute__((vector_size(4 * GS_LANES)));
#else
typedef float gs_lanes_t;
#endif

/* Loops over the registers of a block must vanish, or the registers become memory. */
#if defined(__clang__)
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
#else
#define INLINE static inline
#define UNROLL
#endif

#if GS_LANES >= 4 && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define GS_SHUFFLES 1
#endif
#endif

/* All products are made in panels: up to WIDTH columns side by side, of which the last may be padding. */
#define WIDTH (2u * LANES)
#define STRIP 32u /* features that are turned into columns at a time */

uint32_t gs_nn_offset(const gs_nn_t *nn, uint32_t layer)
{
    uint32_t sum = 0;
    for (uint32_t l = 0; l < layer; ++l) {
        sum += (nn->dims[l] + 1) * nn->dims[l + 1];
    }
    return sum;
}

uint32_t gs_nn_parameters(const gs_nn_t *nn)
{
    return gs_nn_offset(nn, nn->layers);
}

/* Scratch: the input of every layer but the first and the logits, [B][d_l] each, which on the way back give their places
   to the gradients by them; then two panels, the inputs and the outputs of a product. */
static size_t values_floats(const gs_nn_t *nn, uint32_t batch)
{
    size_t sum = 0;
    for (uint32_t l = 1; l <= nn->layers; ++l) {
        sum += (size_t)batch * nn->dims[l];
    }
    return sum;
}

/* Rows that a panel has room for: samples, outputs or a strip of features. */
static uint32_t panel_rows(const gs_nn_t *nn, uint32_t batch)
{
    uint32_t rows = batch > STRIP ? batch : STRIP;
    for (uint32_t l = 1; l <= nn->layers; ++l) {
        rows = nn->dims[l] > rows ? nn->dims[l] : rows;
    }
    return rows;
}

size_t gs_nn_scratch_floats(const gs_nn_t *nn, uint32_t batch)
{
    return values_floats(nn, batch) + 2 * (size_t)WIDTH * panel_rows(nn, batch);
}

void gs_nn_init(const gs_nn_t *nn, uint32_t init, const uint32_t seed[2], float *w)
{
    gs_rng_t rng;
    gs_rng_init(&rng, seed, GS_STREAM_INIT, 0, 0);
    uint32_t p = 0;
    for (uint32_t l = 0; l < nn->layers; ++l) {
        const uint32_t fan_in = nn->dims[l];
        const uint32_t fan_out = nn->dims[l + 1];
        const uint32_t fan = init == GS_INIT_GLOROT ? fan_in + fan_out : fan_in;
        const float limit = gs_sqrtf(6.0f / (float)fan);
        for (const uint32_t end = p + fan_in * fan_out; p < end; ++p) {
            w[p] = (gs_rng_unit(gs_rng_at(&rng, p)) * 2.0f - 1.0f) * limit;
        }
        for (const uint32_t end = p + fan_out; p < end; ++p) {
            w[p] = 0.0f;
        }
    }
}

/* One matrix product serves the forward pass and both parts of the backward pass: it adds to the panel c
   c[r][i] = c[r][i] + a(0, r) * b[0][i] + a(1, r) * b[1][i] + ..., every product and every sum rounded, in this order.
   b and c are panels of `width` columns; a(k, r) = a[k * a_k + r * a_r]. */
typedef struct {
    float *c;
    const float *a;
    const float *b;
    size_t a_k;
    size_t a_r;
    uint32_t rows;
    uint32_t terms;
    uint32_t width; /* LANES or 2 * LANES */
} product_t;

INLINE gs_lanes_t load(const float *from)
{
    gs_lanes_t lanes;
    memcpy(&lanes, from, sizeof lanes);
    return lanes;
}

INLINE void store(float *to, gs_lanes_t lanes)
{
    memcpy(to, &lanes, sizeof lanes);
}

/* Compute `rows` rows of `vectors` * LANES outputs, held in registers over all terms. */
INLINE void block(const product_t *p, uint32_t r, const uint32_t rows, const uint32_t vectors)
{
    gs_lanes_t sum[8];
    float *c = p->c + (size_t)r * vectors * LANES;
    const float *a = p->a + r * p->a_r;
    const float *b = p->b;
    const size_t a_k = p->a_k;
    const size_t a_r = p->a_r;
    UNROLL for (uint32_t x = 0; x < rows * vectors; ++x)
    {
        sum[x] = load(c + x * LANES);
    }
    for (uint32_t k = p->terms; k > 0; --k) {
        gs_lanes_t right[2];
        UNROLL for (uint32_t x = 0; x < vectors; ++x)
        {
            right[x] = load(b + x * LANES);
        }
        UNROLL for (uint32_t y = 0; y < rows; ++y)
        {
            UNROLL for (uint32_t x = 0; x < vectors; ++x)
            {
                sum[y * vectors + x] = sum[y * vectors + x] + right[x] * a[y * a_r];
            }
        }
        a += a_k;
        b += vectors * LANES;
    }
    UNROLL for (uint32_t x = 0; x < rows * vectors; ++x)
    {
        store(c + x * LANES, sum[x]);
    }
}

static void multiply(const product_t *p)
{
    uint32_t r = 0;
    if (p->width == 2 * LANES) {
        for (; r + 4 <= p->rows; r += 4) {
            block(p, r, 4, 2);
        }
        for (; r < p->rows; ++r) {
            block(p, r, 1, 2);
        }
        return;
    }
    for (; r + 8 <= p->rows; r += 8) {
        block(p, r, 8, 1);
    }
    for (; r + 2 <= p->rows; r += 2) {
        block(p, r, 2, 1);
    }
    for (; r < p->rows; ++r) {
        block(p, r, 1, 1);
    }
}

/* The next columns of a panel: how many count, and with the padding. */
static uint32_t columns_left(uint32_t all, uint32_t done)
{
    return all - done < WIDTH ? all - done : WIDTH;
}

static uint32_t padded(uint32_t columns)
{
    return columns > LANES ? WIDTH : LANES;
}

/* What a layer reads: samples (converted on the way, so that they are never held as floats), or x[B][width]. */
typedef struct {
    const float *x;
    const gs_samples_t *samples; /* where x is NULL */
    const uint16_t *rows;        /* NULL: samples from `first` on */
    uint32_t first;
    uint32_t width;
} input_t;

static uint32_t row_of(const input_t *input, uint32_t s)
{
    return input->rows ? input->rows[s] : input->first + s;
}

/* Read `count` features of sample s, from feature `from` on. */
INLINE void read_features(const input_t *input, uint32_t s, uint32_t from, uint32_t count, float *restrict out)
{
    if (input->x) {
        memcpy(out, input->x + (size_t)s * input->width + from, count * sizeof *out);
        return;
    }
    const gs_samples_t *samples = input->samples;
    const size_t at = (size_t)row_of(input, s) * input->width + from;
    if (samples->type == GS_FEATURE_F32) {
        memcpy(out, samples->features + at * sizeof *out, count * sizeof *out);
        return;
    }
    const uint8_t *restrict bytes = samples->features + at;
    const float scale = samples->scale;
    const float offset = samples->offset;
    for (uint32_t i = 0; i < count; ++i) {
        out[i] = (float)bytes[i] * scale + offset;
    }
}

/* Turn four rows of part into four columns of panel. */
INLINE void turn(const float *part, float *panel, uint32_t width)
{
#if GS_SHUFFLES
    typedef float quad_t __attribute__((vector_size(16)));
    quad_t rows[4];
    UNROLL for (uint32_t s = 0; s < 4; ++s)
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
    UNROLL for (uint32_t i = 0; i < 4; ++i)
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
    float part[WIDTH][STRIP];
    const uint32_t width = padded(samples);
    for (uint32_t s = 0; s < width; ++s) {
        if (s >= samples) {
            memset(part[s], 0, sizeof part[s]);
        } else {
            read_features(input, first + s, from, features, part[s]);
        }
    }
    if (LANES < 4) {
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
    for (uint32_t first = 0; first < batch; first += WIDTH) {
        const uint32_t samples = columns_left(batch, first);
        const uint32_t width = padded(samples);
        float *z = panels[1];
        for (uint32_t o = 0; o < fan_out; ++o) {
            for (uint32_t s = 0; s < width; ++s) {
                z[(size_t)o * width + s] = bias[o];
            }
        }
        for (uint32_t from = 0; from < input->width; from += STRIP) {
            const uint32_t features = input->width - from < STRIP ? input->width - from : STRIP;
            strip_of(input, first, samples, from, features, panels[0]);
            multiply(&(product_t){z, weights + from, panels[0], 1, input->width, fan_out, features, width});
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
    for (uint32_t from = 0; from < fan_in; from += WIDTH) {
        const uint32_t columns = columns_left(fan_in, from);
        const uint32_t width = padded(columns);
        for (uint32_t s = 0; s < batch; ++s) {
            float *row = panels[0] + (size_t)s * width;
            read_features(input, s, from, columns, row);
            memset(row + columns, 0, (width - columns) * sizeof *row);
        }
        memset(panels[1], 0, (size_t)fan_out * width * sizeof(float));
        multiply(&(product_t){panels[1], dz, panels[0], fan_out, 1, fan_out, batch, width});
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

/* Turn the inputs x[B][in] of a layer into the gradient by what came before their ReLU, from dz[B][out] (SPEC.md 3.6). */
static void gradient_of_input(const float *weights, const float *dz, float *x, uint32_t batch, uint32_t fan_in,
                              uint32_t fan_out, float *const panels[2])
{
    for (uint32_t from = 0; from < fan_in; from += WIDTH) {
        const uint32_t columns = columns_left(fan_in, from);
        const uint32_t width = padded(columns);
        for (uint32_t o = 0; o < fan_out; ++o) {
            float *row = panels[0] + (size_t)o * width;
            memcpy(row, weights + (size_t)o * fan_in + from, columns * sizeof *row);
            memset(row + columns, 0, (width - columns) * sizeof *row);
        }
        memset(panels[1], 0, (size_t)batch * width * sizeof(float));
        multiply(&(product_t){panels[1], dz, panels[0], 1, fan_out, batch, fan_out, width});
        for (uint32_t s = 0; s < batch; ++s) {
            float *inputs = x + (size_t)s * fan_in + from;
            const float *gradients = panels[1] + (size_t)s * width;
            for (uint32_t i = 0; i < columns; ++i) {
                inputs[i] = inputs[i] > 0.0f ? gradients[i] : 0.0f;
            }
        }
    }
}

/* Compute the outputs of every layer of a batch, one behind the other; returns the last, the logits [B][classes]. */
static float *forward(const gs_nn_t *nn, const float *w, const input_t *samples, uint32_t batch, float *values,
                      float *const panels[2])
{
    input_t input = *samples;
    float *y = values;
    for (uint32_t l = 0; l < nn->layers; ++l) {
        const uint32_t fan_out = nn->dims[l + 1];
        const float *bias = w + (size_t)input.width * fan_out;
        dense(w, bias, &input, y, batch, fan_out, l + 1 < nn->layers, panels);
        w = bias + fan_out;
        input = (input_t){.x = y, .width = fan_out};
        y += (size_t)batch * fan_out;
    }
    return y - (size_t)batch * input.width;
}

/* Loss of one sample. z[classes] becomes its exponentials, *sum theirs, *best the predicted class (SPEC.md 3.5). */
static float softmax_loss(float *z, uint32_t classes, uint32_t label, float *sum, uint32_t *best)
{
    float top = z[0];
    *best = 0;
    for (uint32_t i = 1; i < classes; ++i) {
        if (z[i] > top) {
            top = z[i];
            *best = i;
        }
    }
    const float chosen = z[label];
    float total = 0.0f;
    for (uint32_t i = 0; i < classes; ++i) {
        z[i] = gs_expf(z[i] - top);
        total = total + z[i];
    }
    *sum = total;
    return gs_logf(total) - (chosen - top);
}

float gs_nn_gradient(const gs_nn_t *nn, const float *w, const gs_samples_t *samples, const uint16_t *rows,
                     uint32_t batch, float *g, float *scratch)
{
    float *inputs = scratch + values_floats(nn, batch);
    float *const panels[2] = {inputs, inputs + (size_t)WIDTH * panel_rows(nn, batch)};
    const input_t first = {.samples = samples, .rows = rows, .width = nn->dims[0]};
    float *dz = forward(nn, w, &first, batch, scratch, panels);

    const uint32_t classes = nn->dims[nn->layers];
    const float inv = 1.0f / (float)batch;
    float loss = 0.0f;
    for (uint32_t s = 0; s < batch; ++s) {
        float *z = dz + (size_t)s * classes;
        const uint32_t label = samples->labels[rows[s]];
        float sum;
        uint32_t best;
        loss = loss + softmax_loss(z, classes, label, &sum, &best);
        for (uint32_t i = 0; i < classes; ++i) {
            const float p = z[i] / sum;
            z[i] = (i == label ? p - 1.0f : p) * inv;
        }
    }

    for (uint32_t l = nn->layers; l-- > 0;) {
        const uint32_t fan_in = nn->dims[l];
        const uint32_t fan_out = nn->dims[l + 1];
        const uint32_t at = gs_nn_offset(nn, l);
        if (l == 0) {
            gradient_of_layer(dz, &first, g + at, batch, fan_out, panels);
            break;
        }
        float *x = dz - (size_t)batch * fan_in;
        gradient_of_layer(dz, &(input_t){.x = x, .width = fan_in}, g + at, batch, fan_out, panels);
        gradient_of_input(w + at, dz, x, batch, fan_in, fan_out, panels);
        dz = x;
    }
    return loss / (float)batch;
}

void gs_nn_update(uint32_t parameters, float *w, float *velocity, const float *g, float lr, float momentum,
                  float weight_decay)
{
    for (uint32_t p = 0; p < parameters; ++p) {
        float step = g[p];
        if (weight_decay != 0.0f) {
            step = step + weight_decay * w[p];
        }
        if (velocity) {
            step = momentum * velocity[p] + step;
            velocity[p] = step;
        }
        w[p] = w[p] - lr * step;
    }
}

void gs_nn_evaluate(const gs_nn_t *nn, const float *w, const gs_samples_t *samples, const uint16_t *rows,
                    uint32_t first, uint32_t count, float *loss, uint32_t *correct, float *scratch)
{
    float *inputs = scratch + values_floats(nn, count);
    float *const panels[2] = {inputs, inputs + (size_t)WIDTH * panel_rows(nn, count)};
    const input_t input = {.samples = samples, .rows = rows, .first = first, .width = nn->dims[0]};
    float *logits = forward(nn, w, &input, count, scratch, panels);
    const uint32_t classes = nn->dims[nn->layers];
    for (uint32_t s = 0; s < count; ++s) {
        const uint32_t label = samples->labels[row_of(&input, s)];
        float sum;
        uint32_t best;
        *loss = *loss + softmax_loss(logits + (size_t)s * classes, classes, label, &sum, &best);
        *correct += best == label;
    }
}
