#include "gs_units.h"

#include <string.h>

#include "gs_math.h"

enum { WALK_RANGE, WALK_MASK, WALK_LIST, WALK_INDEX };

/* Units of one layer. */
static uint32_t units_of(const gs_layer_t *layer, uint32_t kind)
{
    if (!gs_layer_learns(layer)) {
        return 0;
    }
    switch (kind) {
    case GS_UNIT_LAYER:
        return 1;
    case GS_UNIT_KERNEL:
        return layer->outputs;
    default: /* what W multiplies, and b */
        return (layer->kind == GS_KIND_DENSE ? gs_layer_inputs(layer) : layer->channels) + 1;
    }
}

uint32_t gs_units_count(const gs_model_t *model, uint32_t kind)
{
    uint32_t count = 0;
    if (kind == GS_UNIT_PARAMETER) {
        return model->parameters;
    }
    for (uint32_t l = 0; l < model->layers; ++l) {
        count += units_of(&model->layer[l], kind);
    }
    return count;
}

/* What W of a layer multiplies by input feature or channel number `c`. In a CONV with several groups, input i of group g
   meets the filters of the outputs of g only; those follow each other, and so do their taps, so one stride leads through. */
static gs_unit_t channel_unit(const gs_layer_t *layer, uint32_t c)
{
    const uint32_t groups = layer->kind == GS_KIND_DENSE ? 1 : layer->option;
    const uint32_t filter = layer->weights / layer->outputs;
    if (layer->kind == GS_KIND_NORM) {
        return (gs_unit_t){layer->at + c, 1, 1, UINT32_MAX};
    }
    const uint32_t inputs = layer->kind == GS_KIND_DENSE ? filter : layer->channels / groups;
    const uint32_t group = c / inputs;
    const uint32_t first = group * (layer->weights / groups) + c % inputs;
    return (gs_unit_t){layer->at + first, inputs, layer->weights / groups / inputs, UINT32_MAX};
}

gs_unit_t gs_units_get(const gs_model_t *model, uint32_t kind, uint32_t number)
{
    const gs_layer_t *layer = model->layer;
    if (kind == GS_UNIT_PARAMETER) {
        return (gs_unit_t){number, 1, 1, UINT32_MAX};
    }
    while (number >= units_of(layer, kind)) {
        number -= units_of(layer++, kind);
    }
    const uint32_t bias = layer->at + layer->weights;
    if (kind == GS_UNIT_LAYER) {
        return (gs_unit_t){layer->at, 1, gs_layer_parameters(layer), UINT32_MAX};
    }
    if (kind == GS_UNIT_KERNEL) {
        const uint32_t filter = layer->weights / layer->outputs;
        return (gs_unit_t){layer->at + number * filter, 1, filter, bias + number};
    }
    if (number + 1 == units_of(layer, kind)) {
        return (gs_unit_t){bias, 1, layer->outputs, UINT32_MAX};
    }
    return channel_unit(layer, number);
}

uint32_t gs_units_largest(const gs_model_t *model, uint32_t kind)
{
    uint32_t largest = 1;
    if (kind == GS_UNIT_PARAMETER) {
        return largest;
    }
    const uint32_t count = gs_units_count(model, kind);
    for (uint32_t number = 0; number < count; ++number) {
        const gs_unit_t unit = gs_units_get(model, kind, number);
        largest = gs_unit_size(&unit) > largest ? gs_unit_size(&unit) : largest;
    }
    return largest;
}

float gs_units_importance(const gs_unit_t *unit, const float *scores, uint32_t reduce)
{
    const uint32_t size = gs_unit_size(unit);
    if (size == 1) {
        return scores[unit->count ? unit->first : unit->extra];
    }
    float sum = 0.0f;
    for (uint32_t i = 0; i < size; ++i) {
        const float score = scores[i < unit->count ? unit->first + i * unit->stride : unit->extra];
        sum = sum + (reduce == GS_REDUCE_L2 ? score * score : score);
    }
    return reduce == GS_REDUCE_L2 ? gs_sqrtf(sum) : sum / (float)size;
}

/* Whether a stands before b. The bits of floats that are not negative are ordered as the floats are. */
static bool before(uint32_t a, uint32_t b, const float *keys)
{
    if (keys) {
        const uint32_t key_a = gs_bits_of(keys[a]);
        const uint32_t key_b = gs_bits_of(keys[b]);
        if (key_a != key_b) {
            return key_a > key_b;
        }
    }
    return a < b;
}

static void sift_down(uint32_t *numbers, uint32_t root, uint32_t count, const float *keys)
{
    const uint32_t moved = numbers[root];
    for (uint32_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && before(numbers[child], numbers[child + 1], keys)) {
            ++child;
        }
        if (!before(moved, numbers[child], keys)) {
            break;
        }
        numbers[root] = numbers[child];
    }
    numbers[root] = moved;
}

void gs_units_sort(uint32_t *numbers, uint32_t count, const float *keys)
{
    /* Heap sort: in place, no recursion, n log n whatever comes. */
    for (uint32_t root = count / 2; root-- > 0;) {
        sift_down(numbers, root, count, keys);
    }
    for (uint32_t end = count; end-- > 1;) {
        const uint32_t last = numbers[end];
        numbers[end] = numbers[0];
        numbers[0] = last;
        sift_down(numbers, 0, end, keys);
    }
}

static void begin(gs_walk_t *walk, uint32_t source, uint32_t next, uint32_t end)
{
    walk->source = source;
    walk->next = next;
    walk->end = end;
    walk->unit = (gs_unit_t){0, 1, 0, UINT32_MAX};
}

void gs_walk_range(gs_walk_t *walk, uint32_t first, uint32_t end)
{
    begin(walk, WALK_RANGE, first, end);
}

void gs_walk_mask(gs_walk_t *walk, uint32_t end, const gs_rng_t *rng, uint32_t ratio24)
{
    begin(walk, WALK_MASK, 0, end);
    walk->rng = *rng;
    walk->ratio24 = ratio24;
}

void gs_walk_list(gs_walk_t *walk, const gs_model_t *model, uint32_t kind, const uint32_t *list, uint32_t count)
{
    begin(walk, WALK_LIST, 0, count);
    walk->model = model;
    walk->kind = kind;
    walk->list = list;
}

void gs_walk_index(gs_walk_t *walk, const gs_model_t *model, uint32_t kind, uint8_t coding, const uint8_t *data,
                   size_t len)
{
    begin(walk, WALK_INDEX, 0, 0);
    walk->model = model;
    walk->kind = kind;
    gs_index_init(&walk->index, coding, data, len, gs_units_count(model, kind));
}

static bool next_unit(gs_walk_t *walk)
{
    uint32_t number;
    if (walk->source == WALK_LIST) {
        if (walk->next == walk->end) {
            return false;
        }
        number = walk->list[walk->next++];
    } else if (!gs_index_next(&walk->index, &number)) {
        return false;
    }
    walk->unit = gs_units_get(walk->model, walk->kind, number);
    return true;
}

bool gs_walk_next(gs_walk_t *walk, uint32_t *coordinate)
{
    if (walk->source == WALK_RANGE) {
        *coordinate = walk->next;
        return walk->next < walk->end && ++walk->next;
    }
    if (walk->source == WALK_MASK) {
        while (walk->next < walk->end && !gs_rng_chance(gs_rng_at(&walk->rng, walk->next), walk->ratio24)) {
            ++walk->next;
        }
        *coordinate = walk->next;
        return walk->next < walk->end && ++walk->next;
    }
    gs_unit_t *unit = &walk->unit;
    if (unit->count == 0 && unit->extra == UINT32_MAX && !next_unit(walk)) {
        return false;
    }
    if (unit->count) {
        *coordinate = unit->first;
        unit->first += unit->stride;
        --unit->count;
    } else {
        *coordinate = unit->extra;
        unit->extra = UINT32_MAX;
    }
    return true;
}

bool gs_walk_ok(const gs_walk_t *walk)
{
    return walk->source != WALK_INDEX || walk->index.ok;
}
