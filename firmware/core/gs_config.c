#include "gs_config.h"

#include "gs_bytes.h"
#include "gs_crc.h"
#include "gs_math.h"
#include "gs_quant.h"
#include "gs_words.h"

typedef struct {
    uint32_t word;
    uint32_t least;
    uint32_t greatest;
} range_t;

static const range_t ranges[] = {
    {GS_CFG_NODES, 2, GS_NODE_ID_MAX + 1},
    {GS_CFG_ROUNDS, 1, UINT32_MAX},
    {GS_CFG_INIT, 0, GS_INIT_GIVEN},
    {GS_CFG_BATCH, 1, 65535},
    {GS_CFG_LOCAL_STEPS, 1, 65535},
    {GS_CFG_OPTIMIZER, 0, GS_OPTIMIZER_ADAM},
    {GS_CFG_VAL_PERMILLE, 0, 999},
    {GS_CFG_EVAL_EVERY, 1, UINT32_MAX},
    {GS_CFG_LR_POLICY, 0, GS_LR_ADASTAIR | GS_LR_ADALOSS},
    {GS_CFG_STAIR_COUNT, 0, GS_MILESTONES_MAX},
    {GS_CFG_LOSS_COUNT, 0, GS_MILESTONES_MAX},
    {GS_CFG_LOSS_REFERENCE, 0, GS_REFERENCE_EMA},
#ifdef GS_ONLY_POLICY /* a build for one experiment has no other */
    {GS_CFG_POLICY, GS_ONLY_POLICY, GS_ONLY_POLICY},
#else
    {GS_CFG_POLICY, 0, GS_POLICY_LOCAL},
#endif
    {GS_CFG_ERROR_FEEDBACK, 0, 1},
    {GS_CFG_FIFO, 1, 65535},
    {GS_CFG_MTU, GS_MTU_MIN, GS_MTU_MAX},
    {GS_CFG_REASSEMBLY, 1, 64},
    {GS_CFG_AUTH, 0, 1},
    {GS_CFG_SHARD_MAX, 2, 65535},
    {GS_CFG_PEERS_MAX, 0, GS_NODE_ID_MAX + 1},
    {GS_CFG_FEATURE_TYPE, 0, GS_FEATURE_F32},
    {GS_CFG_TEST_COUNT, 0, 1u << 24},
};

static const range_t gist_ranges[] = {
    {GS_CFG_SEGMENTS, 1, 65535},
    {GS_CFG_SENDS, 1, 65535},
    {GS_CFG_THRESHOLD, 1, 65535},
    {GS_CFG_UNIT, 0, GS_UNIT_LAYER},
    {GS_CFG_SCORE, 0, GS_SCORE_FISHER},
    {GS_CFG_REDUCE, 0, GS_REDUCE_MEAN},
    {GS_CFG_SPREAD, 0, GS_SPREAD_ROUND_ROBIN},
    {GS_CFG_SUCCESS, 0, GS_SUCCESS_VERIFIED},
};

static const range_t segmented_ranges[] = {{GS_CFG_SEGMENTS, 1, 65535}, {GS_CFG_PULLS, 1, 65535}};
static const range_t gossipfl_ranges[] = {{GS_CFG_RATIO24, 0, 1u << 24}};
static const range_t epidemic_ranges[] = {{GS_CFG_FANOUT, 1, 65535}};
static const range_t topk_ranges[] = {{GS_CFG_TOP, 1, GS_PARAMETERS_MAX}, {GS_CFG_ERROR_FEEDBACK, 0, 0}};

static void check(gs_words_t *reader, const range_t *rows, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        const uint32_t value = gs_words_at(reader, rows[i].word);
        if (value < rows[i].least || value > rows[i].greatest) {
            gs_words_refuse(reader, rows[i].word);
        }
    }
}

#define CHECK(reader, rows) check(reader, rows, sizeof(rows) / sizeof *(rows))

static float finite(gs_words_t *reader, uint32_t at)
{
    const float value = gs_float_of(gs_words_at(reader, at));
    if (!gs_is_finite(value)) {
        gs_words_refuse(reader, at);
    }
    return value;
}

/* A finite float of at least `least`. */
static float real(gs_words_t *reader, uint32_t at, float least)
{
    const float value = finite(reader, at);
    if (value < least) {
        gs_words_refuse(reader, at);
    }
    return value;
}

static void read_model(gs_words_t *reader, gs_config_t *config)
{
    config->init = gs_words_at(reader, GS_CFG_INIT);
    config->batch = gs_words_at(reader, GS_CFG_BATCH);
    config->local_steps = gs_words_at(reader, GS_CFG_LOCAL_STEPS);
    gs_words_refuse(reader, gs_model_read(&config->model, reader->words, config->init == GS_INIT_GIVEN));
    /* Draws of stream DROPOUT have 32-bit numbers; the factors are below 2^16, 2^16 and 2^26. */
    if ((uint64_t)config->local_steps * config->batch * config->model.dropped > 1ull << 32) {
        gs_words_refuse(reader, GS_CFG_LOCAL_STEPS);
    }
}

static void read_optimizer(gs_words_t *reader, gs_config_t *config)
{
    gs_optimizer_t *optimizer = &config->optimizer;
    optimizer->kind = gs_words_at(reader, GS_CFG_OPTIMIZER);
    config->lr = real(reader, GS_CFG_LR, 0.0f);
    optimizer->weight_decay = real(reader, GS_CFG_WEIGHT_DECAY, 0.0f);
    if (optimizer->kind == GS_OPTIMIZER_SGD) {
        optimizer->momentum = real(reader, GS_CFG_MOMENTUM, 0.0f);
        return;
    }
    optimizer->beta1 = real(reader, GS_CFG_BETA1, 0.0f);
    optimizer->beta2 = real(reader, GS_CFG_BETA2, 0.0f);
    optimizer->epsilon = real(reader, GS_CFG_EPSILON, 0.0f);
    if (optimizer->beta1 >= 1.0f) {
        gs_words_refuse(reader, GS_CFG_BETA1);
    }
    if (optimizer->beta2 >= 1.0f) {
        gs_words_refuse(reader, GS_CFG_BETA2);
    }
    if (optimizer->epsilon == 0.0f) {
        gs_words_refuse(reader, GS_CFG_EPSILON);
    }
}

static void read_rates(gs_words_t *reader, gs_config_t *config)
{
    config->lr_policy = gs_words_at(reader, GS_CFG_LR_POLICY);
    config->lr_floor = real(reader, GS_CFG_LR_FLOOR, 0.0f);
    config->stair_count = gs_words_at(reader, GS_CFG_STAIR_COUNT);
    config->stair_factor = real(reader, GS_CFG_STAIR_FACTOR, config->lr_policy & GS_LR_ADASTAIR ? 1.0f : 0.0f);
    config->loss_count = gs_words_at(reader, GS_CFG_LOSS_COUNT);
    config->loss_factor = real(reader, GS_CFG_LOSS_FACTOR, config->lr_policy & GS_LR_ADALOSS ? 1.0f : 0.0f);
    config->loss_reference = gs_words_at(reader, GS_CFG_LOSS_REFERENCE);
    config->loss_ema = real(reader, GS_CFG_LOSS_EMA, 0.0f);
    for (uint32_t i = 0; i < GS_MILESTONES_MAX; ++i) {
        config->stair_at[i] = gs_words_at(reader, GS_CFG_STAIR_AT0 + i);
        config->loss_patience[i] = gs_words_at(reader, GS_CFG_LOSS_PATIENCE0 + i);
    }
}

static void read_policy(gs_words_t *reader, gs_config_t *config)
{
    config->policy = gs_words_at(reader, GS_CFG_POLICY);
    config->bits = gs_words_at(reader, GS_CFG_BITS);
    if (!gs_quant_is_width(config->bits)) {
        gs_words_refuse(reader, GS_CFG_BITS);
    }
    switch (config->policy) {
    case GS_POLICY_GIST:
        CHECK(reader, gist_ranges);
        if (gs_words_at(reader, GS_CFG_THRESHOLD) > gs_words_at(reader, GS_CFG_FIFO)) {
            gs_words_refuse(reader, GS_CFG_THRESHOLD); /* nothing would ever be merged */
        }
        config->base = real(reader, GS_CFG_BASE, 1.0f);
        config->success_base = real(reader, GS_CFG_SUCCESS_BASE, 1.0f);
        config->score_ema = real(reader, GS_CFG_SCORE_EMA, 0.0f);
        break;
    case GS_POLICY_SEGMENTED_GOSSIP:
        CHECK(reader, segmented_ranges);
        break;
    case GS_POLICY_GOSSIPFL:
        CHECK(reader, gossipfl_ranges);
        break;
    case GS_POLICY_EPIDEMIC:
        CHECK(reader, epidemic_ranges);
        break;
    case GS_POLICY_TOPK:
        CHECK(reader, topk_ranges);
        if (gs_words_at(reader, GS_CFG_TOP) > config->model.parameters) {
            gs_words_refuse(reader, GS_CFG_TOP);
        }
        break;
    default:
        break;
    }
    config->error_feedback = gs_words_at(reader, GS_CFG_ERROR_FEEDBACK);
    config->segments = gs_words_at(reader, GS_CFG_SEGMENTS);
    config->sends = gs_words_at(reader, GS_CFG_SENDS);
    config->threshold = config->policy == GS_POLICY_GIST ? gs_words_at(reader, GS_CFG_THRESHOLD) : 1;
    config->fifo = gs_words_at(reader, GS_CFG_FIFO);
    config->unit = config->policy == GS_POLICY_GIST ? gs_words_at(reader, GS_CFG_UNIT) : GS_UNIT_PARAMETER;
    config->score = gs_words_at(reader, GS_CFG_SCORE);
    config->reduce = gs_words_at(reader, GS_CFG_REDUCE);
    config->spread = gs_words_at(reader, GS_CFG_SPREAD);
    config->success = gs_words_at(reader, GS_CFG_SUCCESS);
    config->pulls = gs_words_at(reader, GS_CFG_PULLS);
    config->ratio24 = gs_words_at(reader, GS_CFG_RATIO24);
    config->fanout = gs_words_at(reader, GS_CFG_FANOUT);
    config->top = gs_words_at(reader, GS_CFG_TOP);
    config->max_norm = real(reader, GS_CFG_MAX_NORM, 0.0f);
}

gs_err_t gs_config_load(gs_config_t *config, const uint8_t *image, size_t len, uint32_t *bad_word)
{
    const size_t words_at = GS_IMAGE_HEADER_BYTES;
    const size_t given_at = words_at + 4 * (size_t)GS_CFG_WORDS;
    memset(config, 0, sizeof *config);
    *bad_word = GS_CFG_WORDS;
    if (len < GS_IMAGE_HEADER_BYTES || gs_load_u32(image) != GS_IMAGE_MAGIC) {
        return GS_ERR_IMAGE_MAGIC;
    }
    if (gs_load_u16(image + 4) != GS_SPEC_VERSION) {
        return GS_ERR_SPEC_VERSION;
    }
    if (gs_load_u16(image + 6) != GS_WIRE_VERSION) {
        return GS_ERR_WIRE_VERSION;
    }
    if (gs_load_u32(image + 8) != len || len < given_at) {
        return GS_ERR_IMAGE_LENGTH;
    }
    config->image_crc = gs_load_u32(image + 12);
    if (config->image_crc != gs_crc32(0, image + words_at, len - words_at)) {
        return GS_ERR_IMAGE_CRC;
    }

    gs_words_t reader = {image + words_at, GS_CFG_WORDS};
    CHECK(&reader, ranges);
    config->seed[0] = gs_words_at(&reader, GS_CFG_SEED_LO);
    config->seed[1] = gs_words_at(&reader, GS_CFG_SEED_HI);
    config->nodes = gs_words_at(&reader, GS_CFG_NODES);
    config->rounds = gs_words_at(&reader, GS_CFG_ROUNDS);
    read_model(&reader, config);
    read_optimizer(&reader, config);
    config->val_permille = gs_words_at(&reader, GS_CFG_VAL_PERMILLE);
    config->eval_every = gs_words_at(&reader, GS_CFG_EVAL_EVERY);
    read_rates(&reader, config);
    read_policy(&reader, config);
    config->mtu = gs_words_at(&reader, GS_CFG_MTU);
    config->reassembly = gs_words_at(&reader, GS_CFG_REASSEMBLY);
    config->auth = gs_words_at(&reader, GS_CFG_AUTH);
    config->shard_max = gs_words_at(&reader, GS_CFG_SHARD_MAX);
    config->peers_max = gs_words_at(&reader, GS_CFG_PEERS_MAX);
    config->test.type = gs_words_at(&reader, GS_CFG_FEATURE_TYPE);
    config->test.scale = finite(&reader, GS_CFG_FEATURE_SCALE);
    config->test.offset = finite(&reader, GS_CFG_FEATURE_OFFSET);
    config->test_count = gs_words_at(&reader, GS_CFG_TEST_COUNT);
    if (reader.bad_word != GS_CFG_WORDS) {
        *bad_word = reader.bad_word;
        return GS_ERR_CONFIG;
    }

    gs_model_t *model = &config->model;
    config->row_bytes = model->inputs * (config->test.type == GS_FEATURE_U8 ? 1 : 4);
    const size_t labels_at = given_at + 4 * (size_t)model->given_count;
    const size_t features_at = labels_at + (config->test_count + 3) / 4 * (size_t)4;
    if ((uint64_t)len != features_at + (uint64_t)config->test_count * config->row_bytes) {
        return GS_ERR_IMAGE_LENGTH;
    }
    model->given = (const float *)(const void *)(image + given_at);
    for (uint32_t i = 0; i < model->given_count; ++i) {
        if (!gs_is_finite(model->given[i])) {
            *bad_word = GS_CFG_INIT;
            return GS_ERR_CONFIG;
        }
    }
    config->test.labels = image + labels_at;
    config->test.features = image + features_at;
    for (uint32_t i = 0; i < config->test_count; ++i) {
        if (config->test.labels[i] >= model->classes) {
            return GS_ERR_SHARD;
        }
    }
    return GS_OK;
}
