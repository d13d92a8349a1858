#include "gs_crc.h"
#include "gs_node_internal.h"

/* Whether the node's round is committed. */
bool gs_round_is_committed(const gs_node_t *node)
{
    return node->state->rounds_done > 0 && node->state->rounds_done - 1 == node->round;
}

/* Whether the round ends with a test. */
static bool is_tested(const gs_node_t *node)
{
    return (node->round + 1) % node->config.eval_every == 0 || node->round + 1 == node->config.rounds;
}

/* Fill node->report and begin to count anew. */
static void make_report(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    uint32_t *words = node->counters;
    uint8_t *out = node->report;
    const struct {
        uint32_t word;
        float loss;
    } losses[] = {{GS_METRIC_TRAIN_LOSS, node->train_loss},
                  {GS_METRIC_VAL_LOSS, node->val_loss},
                  {GS_METRIC_TEST_LOSS, node->test_loss}};
    for (size_t i = 0; i < sizeof losses / sizeof *losses; ++i) {
        words[losses[i].word] = gs_is_finite(losses[i].loss) ? gs_bits_of(losses[i].loss) : GS_CANONICAL_NAN;
    }
    words[GS_METRIC_ROUND] = node->round;
    words[GS_METRIC_WEIGHTS_CRC] = gs_crc32(0, node->w, config->model.parameters * sizeof(float));
    words[GS_METRIC_VAL_CORRECT] = node->val_correct;
    words[GS_METRIC_VAL_COUNT] = node->n_val;
    words[GS_METRIC_TEST_CORRECT] = node->test_correct;
    words[GS_METRIC_TEST_COUNT] = is_tested(node) ? config->test_count : 0;
    for (uint32_t i = 0; i < GS_METRIC_WORDS; ++i, out += 4) {
        gs_store_u32(out, words[i]);
    }
    for (uint32_t l = 0; l < config->model.layers; ++l) {
        const gs_layer_t *layer = &config->model.layer[l];
        if (gs_layer_learns(layer)) {
            const float *weights = node->w + layer->at;
            gs_store_u32(out, gs_crc32(0, weights, layer->weights * sizeof(float)));
            gs_store_u32(out + 4, gs_crc32(0, weights + layer->weights, layer->outputs * sizeof(float)));
            out += 8;
        }
    }
    node->report_bytes = (size_t)(out - node->report);
    memset(node->counters, 0, sizeof node->counters);
    node->reported = true;
}

void gs_round_tell_metrics(gs_node_t *node)
{
    gs_node_tell(node, GS_MESSAGE_METRICS, node->report, node->report_bytes);
}

/* --- a round (SPEC.md 4.3) -------------------------------------------------------------------------------------- */

gs_err_t gs_round_begin(gs_node_t *node, uint32_t round)
{
    if (round == node->round && (node->sharing_done || gs_round_is_committed(node))) {
        gs_node_tell_number(node, GS_MESSAGE_DONE, 0);
        return GS_OK;
    }
    if (node->phase != GS_PHASE_IDLE || node->sharing_done) {
        return round == node->round && node->phase != GS_PHASE_STOPPED ? GS_OK : GS_ERR_STATE;
    }
    if (!node->welcomed || !node->provisioned || round < node->state->rounds_done || round >= node->config.rounds) {
        return GS_ERR_STATE;
    }
    memset(node->policy, 0, gs_policy_bytes(&node->config));
    node->round = round;
    node->sharing_done = false;
    gs_lr_begin_round(&node->state->rate, &node->config, round);
    node->counters[GS_METRIC_LR] = gs_bits_of(node->state->rate.lr);
    memcpy(node->start, node->w, node->config.model.parameters * sizeof(float));
    if (node->average) {
        memset(node->average, 0, node->config.model.parameters * sizeof(float));
    }
    node->batch_draw = 0;
    node->train_loss = 0.0f;
    node->val_loss = 0.0f;
    node->val_correct = 0;
    node->test_loss = 0.0f;
    node->test_correct = 0;
    node->cursor = 0;
    node->phase = GS_PHASE_TRAIN;
    return GS_OK;
}

/* Take the next mini-batch of the round's endless stream (SPEC.md 4.2). */
static const uint16_t *next_batch(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    const uint16_t *training = node->lists + node->n_val;
    uint16_t *deck = node->lists + config->shard_max;
    uint16_t *rows = deck + config->shard_max;
    gs_rng_t rng;
    gs_rng_init(&rng, config->seed, GS_STREAM_BATCH, node->round, node->id);
    for (uint32_t s = 0; s < config->batch; ++s) {
        const uint32_t draw = node->batch_draw++;
        const uint32_t t = draw % node->n_train;
        if (t == 0) {
            memcpy(deck, training, node->n_train * sizeof *deck);
        }
        const uint32_t j = t + gs_rng_below(gs_rng_at(&rng, draw), node->n_train - t);
        rows[s] = deck[j];
        deck[j] = deck[t];
        deck[t] = rows[s];
    }
    return rows;
}

static void add_score(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    const float beta = config->score_ema;
    const float rest = 1.0f - beta;
    for (uint32_t p = 0; p < config->model.parameters; ++p) {
        const float g = node->gradient[p];
        const float term = config->score == GS_SCORE_GRADIENT ? gs_absf(g)
                           : config->score == GS_SCORE_TAYLOR ? gs_absf(node->w[p] * g)
                                                              : g * g;
        node->average[p] = beta * node->average[p] + rest * term;
    }
}

static void end_training(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    const size_t bytes = config->model.parameters * sizeof(float);
    node->train_loss = node->train_loss / (float)config->local_steps;
    for (uint32_t p = 0; p < config->model.parameters; ++p) {
        if (!gs_is_finite(node->w[p])) {
            memcpy(node->w, node->start, bytes);
            gs_optimizer_reset(&config->optimizer, config->model.parameters, node->optimizer);
            if (node->average) {
                memset(node->average, 0, bytes);
            }
            node->counters[GS_METRIC_DIVERGED] = 1;
            break;
        }
    }
    node->cursor = 0;
    node->phase = GS_PHASE_VALIDATE;
}

static void train_step(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    const gs_model_t *model = &config->model;
    const gs_batch_t batch = {&node->samples, next_batch(node), 0, config->batch};
    gs_rng_t dropout;
    gs_rng_init(&dropout, config->seed, GS_STREAM_DROPOUT, node->round, node->id);
    const float loss = gs_nn_gradient(model, node->w, &batch, &dropout, node->cursor * config->batch * model->dropped,
                                      node->gradient, node->scratch);
    node->train_loss = node->train_loss + loss;
    if (node->average) {
        add_score(node);
    }
    gs_optimizer_step(&config->optimizer, model->parameters, node->state->rate.lr, node->w, node->gradient,
                      node->optimizer);
    if (++node->cursor == config->local_steps) {
        end_training(node);
    }
}

/* Evaluate the next few validation samples; returns whether all are done. */
static bool validate_some(gs_node_t *node, uint32_t *cursor, float *loss, uint32_t *correct)
{
    const gs_config_t *config = &node->config;
    const uint32_t count = gs_min_u32(config->batch, node->n_val - *cursor);
    const gs_batch_t batch = {&node->samples, node->lists + *cursor, 0, count};
    gs_nn_evaluate(&config->model, node->w, &batch, loss, correct, node->scratch);
    *cursor += count;
    if (*cursor < node->n_val) {
        return false;
    }
    if (node->n_val) {
        *loss = *loss / (float)node->n_val;
    }
    return true;
}

void gs_node_validate(gs_node_t *node, float *loss, uint32_t *correct)
{
    uint32_t cursor = 0;
    *loss = 0.0f;
    *correct = 0;
    while (!validate_some(node, &cursor, loss, correct)) {
    }
}

static void share(gs_node_t *node)
{
    const gs_policy_t *policy = gs_policy_get(node->config.policy);
    node->success = node->n_val ? (float)node->val_correct / (float)node->n_val : 1.0f;
    gs_lr_see_loss(&node->state->rate, &node->config, node->train_loss);
    if (policy->share && node->state->peers) {
        policy->share(node);
    }
    node->sharing_done = true;
    node->phase = GS_PHASE_IDLE;
    gs_node_tell_number(node, GS_MESSAGE_DONE, 0);
}

static void answer(gs_node_t *node)
{
    const gs_policy_t *policy = gs_policy_get(node->config.policy);
    if (policy->answer) {
        policy->answer(node);
    }
    node->phase = GS_PHASE_IDLE;
    gs_node_tell_number(node, GS_MESSAGE_DONE, 1);
}

void gs_round_count_reassembly(gs_node_t *node)
{
    node->counters[GS_METRIC_DROPPED_REASSEMBLY] += node->reassembly.dropped;
    node->reassembly.dropped = 0;
}

static void merge(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    gs_merge_commit(node);
    gs_reassembly_close(&node->reassembly);
    gs_round_count_reassembly(node);
    node->cursor = is_tested(node) ? 0 : config->test_count;
    node->phase = GS_PHASE_EVALUATE;
}

static void evaluate_some(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    const uint32_t count = gs_min_u32(config->batch, config->test_count - node->cursor);
    if (count) {
        const gs_batch_t batch = {&config->test, NULL, node->cursor, count};
        gs_nn_evaluate(&config->model, node->w, &batch, &node->test_loss, &node->test_correct, node->scratch);
        node->cursor += count;
        if (node->cursor < config->test_count) {
            return;
        }
        node->test_loss = node->test_loss / (float)config->test_count;
    }
    node->state->rounds_done = node->round + 1;
    node->sharing_done = false;
    node->phase = GS_PHASE_IDLE;
    gs_memory_save(node);
    make_report(node);
    gs_round_tell_metrics(node);
}

bool gs_node_step(gs_node_t *node)
{
    switch (node->phase) {
    case GS_PHASE_TRAIN:
        train_step(node);
        break;
    case GS_PHASE_VALIDATE:
        if (validate_some(node, &node->cursor, &node->val_loss, &node->val_correct)) {
            node->phase = GS_PHASE_SHARE;
        }
        break;
    case GS_PHASE_SHARE:
        share(node);
        break;
    case GS_PHASE_ANSWER:
        answer(node);
        break;
    case GS_PHASE_MERGE:
        merge(node);
        break;
    case GS_PHASE_EVALUATE:
        evaluate_some(node);
        break;
    default:
        break;
    }
    return node->phase != GS_PHASE_IDLE && node->phase != GS_PHASE_STOPPED;
}
