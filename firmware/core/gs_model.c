#include "gs_model.h"

#include <string.h>

#include "gs_words.h"

#define WORD_MAX 65535u /* of sizes of the input, of outputs, kernels and strides */

/* --- the words of one layer ------------------------------------------------------------------------------------- */

#define HAS(option) (1u << GS_LAYER_##option)
#define HAS_WINDOW (HAS(KERNEL_HEIGHT) | HAS(KERNEL_WIDTH) | HAS(STRIDE_HEIGHT) | HAS(STRIDE_WIDTH) | HAS(PADDING))

/* The options of each kind; every other word of such a layer is 0. */
static const uint32_t options[] = {
    [GS_KIND_DENSE] = HAS(RELU) | HAS(OUTPUTS) | HAS(FROZEN),
    [GS_KIND_CONV] = HAS(RELU) | HAS(OUTPUTS) | HAS_WINDOW | HAS(GROUPS) | HAS(FROZEN),
    [GS_KIND_NORM] = HAS(RELU) | HAS(GROUPS) | HAS(FROZEN),
    [GS_KIND_POOL_MAX] = HAS_WINDOW,
    [GS_KIND_POOL_AVERAGE] = HAS_WINDOW,
    [GS_KIND_ADD] = HAS(RELU) | HAS(SOURCE),
    [GS_KIND_FLATTEN] = 0,
    [GS_KIND_DROPOUT] = HAS(RATE24),
};

/* What an option may be. `source` is checked with the shapes. */
static const gs_range_t ranges[GS_LAYER_WORDS] = {
    [GS_LAYER_KIND] = {0, GS_KIND_DROPOUT + 1},
    [GS_LAYER_RELU] = {0, 2},
    [GS_LAYER_OUTPUTS] = {1, WORD_MAX + 1},
    [GS_LAYER_KERNEL_HEIGHT] = {1, WORD_MAX + 1},
    [GS_LAYER_KERNEL_WIDTH] = {1, WORD_MAX + 1},
    [GS_LAYER_STRIDE_HEIGHT] = {1, WORD_MAX + 1},
    [GS_LAYER_STRIDE_WIDTH] = {1, WORD_MAX + 1},
    [GS_LAYER_PADDING] = {0, GS_PADDING_SAME + 1},
    [GS_LAYER_GROUPS] = {1, GS_ELEMENTS_MAX + 1},
    [GS_LAYER_SOURCE] = {0, GS_LAYERS_MAX},
    [GS_LAYER_RATE24] = {0, 1u << 24},
    [GS_LAYER_FROZEN] = {0, 2},
};

/* Check each word of a layer by itself. */
static void check_words(gs_words_t *reader, uint32_t base)
{
    const uint32_t kind = gs_words_at(reader, base + GS_LAYER_KIND);
    if (kind > GS_KIND_DROPOUT) {
        gs_words_refuse(reader, base + GS_LAYER_KIND);
        return;
    }
    for (uint32_t option = GS_LAYER_KIND + 1; option < GS_LAYER_WORDS; ++option) {
        const uint32_t value = gs_words_at(reader, base + option);
        const gs_range_t range = options[kind] >> option & 1 ? ranges[option] : (gs_range_t){0, 1};
        if (value < range.first || value >= range.end) {
            gs_words_refuse(reader, base + option);
        }
    }
}

/* Work out where windows stand along an axis (SPEC.md 3.1); `at` is the word of the kernel's size. */
static void set_windows(gs_words_t *reader, gs_axis_t *axis, uint32_t at, uint32_t stride, uint32_t padding)
{
    axis->kernel = gs_words_at(reader, at);
    axis->stride = stride;
    if (padding == GS_PADDING_SAME) {
        axis->out = (axis->in + stride - 1) / stride;
        const uint32_t covered = (axis->out - 1) * stride + axis->kernel;
        axis->before = covered > axis->in ? (covered - axis->in) / 2 : 0;
    } else if (axis->kernel > axis->in) {
        gs_words_refuse(reader, at);
    } else {
        axis->out = (axis->in - axis->kernel) / stride + 1;
    }
}

static bool same_output(const gs_layer_t *a, const gs_layer_t *b)
{
    return a->y.out == b->y.out && a->x.out == b->x.out && a->outputs == b->outputs;
}

/* Numbers of W of a CONV, or any number above GS_PARAMETERS_MAX. */
static uint32_t filter_numbers(const gs_layer_t *layer)
{
    const uint32_t factors[] = {layer->y.kernel, layer->x.kernel, layer->channels / layer->option};
    uint64_t product = layer->outputs;
    for (size_t i = 0; i < sizeof factors / sizeof *factors && product <= GS_PARAMETERS_MAX; ++i) {
        product *= factors[i]; /* below 2^24 * 2^20 */
    }
    return product <= GS_PARAMETERS_MAX ? (uint32_t)product : GS_PARAMETERS_MAX + 1;
}

/* Read layer `l`, whose input has the shape of what `layer` says; its words are in range each by itself. */
static void read_layer(gs_words_t *reader, gs_model_t *model, uint32_t l)
{
    gs_layer_t *layer = &model->layer[l];
    const uint32_t base = GS_CFG_LAYER0 + l * GS_LAYER_WORDS;
    layer->kind = (uint8_t)gs_words_at(reader, base + GS_LAYER_KIND);
    layer->relu = gs_words_at(reader, base + GS_LAYER_RELU);
    layer->frozen = gs_words_at(reader, base + GS_LAYER_FROZEN);
    layer->y.out = layer->y.in;
    layer->x.out = layer->x.in;
    layer->outputs = layer->channels;
    if (options[layer->kind] & HAS(KERNEL_HEIGHT)) {
        const uint32_t padding = gs_words_at(reader, base + GS_LAYER_PADDING);
        set_windows(reader, &layer->y, base + GS_LAYER_KERNEL_HEIGHT,
                    gs_words_at(reader, base + GS_LAYER_STRIDE_HEIGHT), padding);
        set_windows(reader, &layer->x, base + GS_LAYER_KERNEL_WIDTH, gs_words_at(reader, base + GS_LAYER_STRIDE_WIDTH),
                    padding);
    }
    switch (layer->kind) {
    case GS_KIND_DENSE:
    case GS_KIND_FLATTEN:
        layer->y.out = 1;
        layer->x.out = 1;
        layer->outputs = gs_layer_inputs(layer);
        if (layer->kind == GS_KIND_DENSE) {
            const uint64_t weights = (uint64_t)layer->outputs * gs_words_at(reader, base + GS_LAYER_OUTPUTS);
            layer->weights = weights <= GS_PARAMETERS_MAX ? (uint32_t)weights : GS_PARAMETERS_MAX + 1;
            layer->outputs = gs_words_at(reader, base + GS_LAYER_OUTPUTS);
        }
        break;
    case GS_KIND_CONV:
        layer->outputs = gs_words_at(reader, base + GS_LAYER_OUTPUTS);
        layer->option = gs_words_at(reader, base + GS_LAYER_GROUPS);
        if (layer->channels % layer->option || layer->outputs % layer->option) {
            gs_words_refuse(reader, base + GS_LAYER_GROUPS);
        }
        if ((uint64_t)layer->y.out * layer->x.out * layer->outputs > GS_ELEMENTS_MAX) {
            gs_words_refuse(reader, base + GS_LAYER_OUTPUTS);
        }
        layer->weights = filter_numbers(layer);
        break;
    case GS_KIND_NORM:
        layer->option = gs_words_at(reader, base + GS_LAYER_GROUPS);
        if (layer->channels % layer->option) {
            gs_words_refuse(reader, base + GS_LAYER_GROUPS);
        }
        layer->weights = layer->channels;
        break;
    case GS_KIND_ADD:
        layer->option = gs_words_at(reader, base + GS_LAYER_SOURCE);
        if (layer->option + 2 > l || !same_output(layer, &model->layer[layer->option])) {
            gs_words_refuse(reader, base + GS_LAYER_SOURCE);
        }
        break;
    case GS_KIND_DROPOUT:
        layer->option = gs_words_at(reader, base + GS_LAYER_RATE24);
        layer->at = model->dropped;
        model->dropped += gs_layer_outputs(layer);
        break;
    default:
        break;
    }
}

/* --- the whole -------------------------------------------------------------------------------------------------- */

static bool is_read_by_add(const gs_model_t *model, uint32_t l)
{
    for (uint32_t reader = l + 2; reader < model->layers; ++reader) {
        if (model->layer[reader].kind == GS_KIND_ADD && model->layer[reader].option == l) {
            return true;
        }
    }
    return false;
}

/* Give each layer the place of its parameters; `lowest` is among the layers if any of them learns. */
static void place_parameters(gs_model_t *model, bool all_given)
{
    model->lowest = model->layers;
    for (uint32_t l = model->layers; l-- > 0;) {
        model->lowest = gs_layer_learns(&model->layer[l]) ? l : model->lowest;
    }
    for (uint32_t l = 0; l < model->layers; ++l) {
        gs_layer_t *layer = &model->layer[l];
        const uint32_t count = gs_layer_parameters(layer);
        if (count) {
            layer->at = layer->frozen ? model->given_count : model->parameters;
        }
        model->given_count += layer->frozen || all_given ? count : 0;
        model->parameters += layer->frozen ? 0 : count;
    }
}

/* Value 0 is the input of a sample, value l + 1 the output of layer l. */
typedef struct {
    uint32_t size;
    uint32_t place;
    uint32_t born; /* the layer that writes it; the input is there before layer 0 runs */
    uint32_t last; /* the last layer that reads it */
    bool placed;
} value_t;

/* What the lowest layer that learns reads, and all that follows, is needed on the way back; the rest until the last layer
   that reads it has run. */
static void list_values(gs_model_t *model, value_t values[GS_LAYERS_MAX + 1])
{
    for (uint32_t v = 0; v <= model->layers; ++v) {
        const uint32_t size = v ? gs_layer_outputs(&model->layer[v - 1]) : model->inputs;
        values[v] = (value_t){size, 0, v ? v - 1 : 0, v < model->lowest ? v : UINT32_MAX, false};
    }
    for (uint32_t l = model->layers; l-- > 0;) {
        gs_layer_t *layer = &model->layer[l];
        layer->in_place = (layer->kind == GS_KIND_FLATTEN || layer->kind == GS_KIND_DROPOUT) &&
                          !is_read_by_add(model, l) && !(l && is_read_by_add(model, l - 1));
        if (layer->kind == GS_KIND_ADD && values[layer->option + 1].last < l) {
            values[layer->option + 1].last = l;
        }
        if (layer->in_place) {
            values[l + 1].placed = true; /* where values[l] is, which stands for both */
            values[l + 1].size = 0;
            values[l].last = values[l + 1].last;
        }
    }
}

/* Find the lowest place for a value where no other lies that is alive at the same time. */
static uint32_t lowest_place(const value_t *values, uint32_t count, const value_t *value)
{
    uint32_t place = 0;
    for (uint32_t v = 0; v < count; ++v) {
        const value_t *other = &values[v];
        if (other->placed && other->born <= value->last && value->born <= other->last &&
            other->place < place + value->size && place < other->place + other->size) {
            place = other->place + other->size;
            v = UINT32_MAX; /* look at all of them again */
        }
    }
    return place;
}

/* Give the values of a sample their places, the greatest first. */
static void place_values(gs_model_t *model)
{
    value_t values[GS_LAYERS_MAX + 1];
    list_values(model, values);
    for (;;) {
        value_t *next = NULL;
        for (uint32_t v = 0; v <= model->layers; ++v) {
            if (!values[v].placed && (!next || values[v].size > next->size)) {
                next = &values[v];
            }
        }
        if (!next) {
            break;
        }
        next->place = lowest_place(values, model->layers + 1, next);
        next->placed = true;
        model->values = model->values < next->place + next->size ? next->place + next->size : model->values;
    }
    for (uint32_t l = 0; l < model->layers; ++l) {
        if (model->layer[l].in_place) {
            values[l + 1].place = values[l].place;
        }
        model->layer[l].value = values[l + 1].place;
    }
    model->input = values[0].place;
}

static bool is_perceptron(const gs_model_t *model)
{
    for (uint32_t l = 0; l < model->layers; ++l) {
        if (model->layer[l].kind != GS_KIND_DENSE || model->layer[l].frozen) {
            return false;
        }
    }
    return !model->layer[model->layers - 1].relu;
}

/* Read the input's shape into layer 0. */
static void read_input(gs_words_t *reader, gs_model_t *model)
{
    uint64_t numbers = 1;
    for (uint32_t axis = GS_CFG_INPUT_HEIGHT; axis <= GS_CFG_INPUT_CHANNELS; ++axis) {
        const uint32_t size = gs_words_at(reader, axis);
        if (size < 1 || size > WORD_MAX) {
            gs_words_refuse(reader, axis);
        }
        numbers *= size;
    }
    if (reader->bad_word == GS_CFG_WORDS && numbers > GS_ELEMENTS_MAX) {
        gs_words_refuse(reader, GS_CFG_INPUT_HEIGHT);
    }
    model->inputs = (uint32_t)numbers;
    model->layer[0].y.in = gs_words_at(reader, GS_CFG_INPUT_HEIGHT);
    model->layer[0].x.in = gs_words_at(reader, GS_CFG_INPUT_WIDTH);
    model->layer[0].channels = gs_words_at(reader, GS_CFG_INPUT_CHANNELS);
}

uint32_t gs_model_read(gs_model_t *model, const uint8_t *words, bool all_given)
{
    gs_words_t reader = {words, GS_CFG_WORDS};
    uint64_t parameters = 0;
    memset(model, 0, sizeof *model);
    model->layers = gs_words_at(&reader, GS_CFG_LAYERS);
    read_input(&reader, model);
    if (model->layers < 1 || model->layers > GS_LAYERS_MAX) {
        gs_words_refuse(&reader, GS_CFG_LAYERS);
        return reader.bad_word;
    }
    for (uint32_t l = 0; l < model->layers && reader.bad_word == GS_CFG_WORDS; ++l) {
        if (l) {
            const gs_layer_t *below = &model->layer[l - 1];
            model->layer[l].y.in = below->y.out;
            model->layer[l].x.in = below->x.out;
            model->layer[l].channels = below->outputs;
        }
        check_words(&reader, GS_CFG_LAYER0 + l * GS_LAYER_WORDS);
        if (reader.bad_word == GS_CFG_WORDS) {
            read_layer(&reader, model, l);
            parameters += gs_layer_parameters(&model->layer[l]);
        }
    }
    for (uint32_t at = GS_CFG_LAYER0 + model->layers * GS_LAYER_WORDS; at < GS_CFG_INIT; ++at) {
        if (gs_words_at(&reader, at)) {
            gs_words_refuse(&reader, at);
        }
    }
    if (reader.bad_word != GS_CFG_WORDS) {
        return reader.bad_word;
    }
    place_parameters(model, all_given);
    model->classes = gs_layer_outputs(&model->layer[model->layers - 1]);
    if (parameters > GS_PARAMETERS_MAX || model->parameters == 0 || model->classes > GS_CLASSES_MAX) {
        return GS_CFG_LAYERS;
    }
    place_values(model);
    model->perceptron = is_perceptron(model);
    return model->perceptron == gs_model_is_perceptron(model) ? GS_CFG_WORDS : GS_CFG_LAYERS;
}
