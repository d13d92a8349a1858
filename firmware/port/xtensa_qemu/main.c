/* The node on a bare machine: frames over a serial line, everything else in flash.

   Flash holds who the node is (identity_t), the experiment image, and two slots for checkpoints; the memory that code,
   data and stack leave is the node's. What the machine says to people goes over the same line, as runs of bytes that
   are no frame: each begins with SAYS, which no encoder writes ahead of so few bytes. */
#include <string.h>

#include "gs_board.h"
#include "gs_bytes.h"
#include "gs_cobs.h"
#include "gs_node.h"

#define IDENTITY_MAGIC 0x44495347u /* "GSID" */
#define SAYS 0xFFu
#define REPORT_BYTES 512u
#define HELLO_TICKS 2u
#define LAST_WORDS_SEQ 0xFFFF0000u /* after anything that the node itself ever numbers */

typedef struct {
    uint32_t magic;
    uint32_t id;
    uint32_t image_bytes;
    uint8_t key[GS_KEY_BYTES];
} identity_t;

/* Parts of the flash, from the linker script. */
extern const identity_t gs_identity;
extern const uint8_t gs_experiment[];
extern const uint8_t gs_experiment_end[];
extern uint8_t gs_checkpoints[];
extern uint8_t gs_checkpoints_end[];

static gs_node_t node;
static gs_cobs_t cobs;
static uint8_t *encoded; /* room for the longest frame, encoded */

/* --- words for people ------------------------------------------------------------------------------------------- */

typedef struct {
    char text[REPORT_BYTES];
    size_t len;
} words_t;

static void add(words_t *words, const char *text)
{
    while (*text && words->len < sizeof words->text - 1) {
        words->text[words->len++] = *text++;
    }
    words->text[words->len] = 0;
}

static void add_number(words_t *words, uint32_t number)
{
    char digits[11];
    size_t at = sizeof digits - 1;
    digits[at] = 0;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    add(words, digits + at);
}

static void add_hex(words_t *words, uint32_t number)
{
    char digits[9] = {0};
    for (size_t i = 0; i < 8; ++i) {
        digits[i] = "0123456789abcdef"[number >> (28 - 4 * i) & 15];
    }
    add(words, digits);
}

/* A delimiter ahead: what was on the line before must not swallow it. */
static void say(const char *text)
{
    gs_board_put(0);
    gs_board_put(SAYS);
    for (size_t i = 0; text[i] && i < 250; ++i) {
        gs_board_put((uint8_t)text[i]);
    }
    gs_board_put(0);
}

static void put_frame(const uint8_t *frame, size_t len, uint8_t *room)
{
    const size_t bytes = gs_cobs_encode(frame, len, room);
    gs_board_put(0);
    for (size_t i = 0; i < bytes; ++i) {
        gs_board_put(room[i]);
    }
}

/* --- last words ------------------------------------------------------------------------------------------------- */

/* Say ERROR and stop for good. Nothing of the node's is used, whose state may be broken: its frames have the least size,
   which every experiment allows, a tag whether asked for or not, and numbers after any of the node's. */
static _Noreturn void fail(gs_err_t err, const words_t *words)
{
    static uint8_t payload[4 + REPORT_BYTES];
    static uint8_t packed[GS_MTU_MIN];
    static uint8_t room[GS_COBS_BYTES(GS_MTU_MIN)];
    static gs_hmac_key_t key;
    const size_t most = gs_wire_room(GS_MTU_MIN, true);
    const size_t len = 4 + words->len;
    gs_store_u32(payload, (uint32_t)(int32_t)err);
    memcpy(payload + 4, words->text, words->len);
    gs_hmac_init(&key, gs_identity.key, GS_KEY_BYTES);
    for (size_t at = 0; at < len; at += most) {
        const gs_frame_t frame = {
            .type = GS_MESSAGE_ERROR,
            .src = (uint16_t)gs_identity.id,
            .dst = GS_COORDINATOR,
            .round = node.round,
            .seq = (uint32_t)(LAST_WORDS_SEQ + at / most),
            .fragment = (uint16_t)(at / most),
            .fragments = (uint16_t)((len + most - 1) / most),
            .len = (uint16_t)(len - at < most ? len - at : most),
            .payload = payload + at,
        };
        put_frame(packed, gs_wire_pack(&frame, &key, packed), room);
    }
    say(words->text);
    gs_board_halt();
}

void gs_board_on_fault(const gs_trap_t *trap)
{
    static words_t words;
    add(&words, trap->cause == GS_TRAP_STACK ? "the stack is used up" : "cause ");
    if (trap->cause != GS_TRAP_STACK) {
        add_number(&words, trap->cause);
        add(&words, ", pc ");
        add_hex(&words, trap->pc);
        add(&words, ", address ");
        add_hex(&words, trap->address);
        add(&words, ", ps ");
        add_hex(&words, trap->ps);
        add(&words, ", sar ");
        add_number(&words, trap->sar);
        for (uint32_t i = 0; i < 16; ++i) {
            add(&words, ", a");
            add_number(&words, i);
            add(&words, " ");
            add_hex(&words, trap->a[i]);
        }
    }
    fail(GS_ERR_FAULT, &words);
}

/* --- the node's port -------------------------------------------------------------------------------------------- */

static void on_send(void *ctx, const uint8_t *frame, size_t len)
{
    (void)ctx;
    put_frame(frame, len, encoded);
}

/* A slot: its length, then its bytes; the length is written last, so that a cut leaves no half. */
static size_t slot_capacity(void)
{
    return (size_t)(gs_checkpoints_end - gs_checkpoints) / 2;
}

static uint8_t *slot_at(uint32_t slot)
{
    return gs_checkpoints + slot * slot_capacity();
}

static gs_err_t on_kv_put(void *ctx, uint32_t slot, const uint8_t *data, size_t len)
{
    (void)ctx;
    if (len > slot_capacity() - 4) {
        return GS_ERR_CHECKPOINT;
    }
    gs_store_u32(slot_at(slot), 0);
    memcpy(slot_at(slot) + 4, data, len);
    gs_store_u32(slot_at(slot), (uint32_t)len);
    return GS_OK;
}

static size_t on_kv_get(void *ctx, uint32_t slot, uint8_t *data, size_t capacity)
{
    (void)ctx;
    const size_t len = gs_load_u32(slot_at(slot));
    if (len > capacity) {
        return 0;
    }
    memcpy(data, slot_at(slot) + 4, len);
    return len;
}

static void on_log(void *ctx, const char *text)
{
    (void)ctx;
    say(text);
}

/* --- running ---------------------------------------------------------------------------------------------------- */

/* Refuse to start, by the error's own text and what is known of it. */
static _Noreturn void refuse(gs_err_t err, const char *what, uint32_t number)
{
    static words_t words;
    add(&words, gs_err_text(err));
    add(&words, what);
    if (err == GS_ERR_CONFIG || err == GS_ERR_ARENA) {
        add_number(&words, number);
    }
    fail(err, &words);
}

/* Take the two buffers of the line, then the arena, from the memory that is left. */
static void start(void)
{
    static const gs_port_t port = {NULL, on_send, on_kv_put, on_kv_get, on_log};
    static gs_config_t config;
    uint32_t bad_word = 0;
    uint8_t *memory;
    const size_t memory_bytes = gs_board_memory(&memory);
    const size_t image_bytes = gs_identity.image_bytes;
    gs_err_t err = GS_ERR_IMAGE_LENGTH;
    if (image_bytes <= (size_t)(gs_experiment_end - gs_experiment)) {
        err = gs_config_load(&config, gs_experiment, image_bytes, &bad_word);
    }
    if (err) {
        refuse(err, err == GS_ERR_CONFIG ? ": " : "", bad_word);
    }
    const size_t decoded_bytes = (config.mtu + 7) / 8 * 8;
    const size_t encoded_bytes = (GS_COBS_BYTES(config.mtu) + 7) / 8 * 8;
    const size_t arena_bytes = gs_node_arena_bytes(&config, NULL, NULL);
    const size_t bytes = decoded_bytes + encoded_bytes + arena_bytes;
    if (bytes > memory_bytes) {
        refuse(GS_ERR_ARENA, "; bytes missing: ", (uint32_t)(bytes - memory_bytes));
    }
    gs_cobs_init(&cobs, memory, config.mtu);
    encoded = memory + decoded_bytes;
    err = gs_node_init(&node, (uint16_t)gs_identity.id, gs_identity.key, &port, gs_experiment, image_bytes,
                       encoded + encoded_bytes, arena_bytes);
    if (err) {
        refuse(err, "", 0);
    }
}

static void receive(void)
{
    for (int byte = gs_board_get(); byte >= 0; byte = gs_board_get()) {
        const uint32_t garbage = cobs.garbage;
        if (gs_cobs_feed(&cobs, (uint8_t)byte)) {
            (void)gs_node_on_frame(&node, cobs.buffer, cobs.len); /* errors are counted and told already */
        }
        gs_node_note_garbage(&node, cobs.garbage - garbage);
    }
}

/* Say HELLO until it is heard; afterwards it does nothing. */
static void greet(void)
{
    static uint32_t said;
    if (gs_board_ticks() - said >= HELLO_TICKS) {
        said = gs_board_ticks();
        gs_node_hello(&node);
    }
}

static void run(void)
{
    static const gs_trap_t used_up = {.cause = GS_TRAP_STACK};
    while (!gs_node_stopped(&node)) {
        receive();
        if (!gs_node_step(&node)) {
            gs_board_wait();
        }
        greet();
        if (gs_board_stack_is_used_up()) {
            gs_board_on_fault(&used_up);
        }
    }
}

static void say_stack(void)
{
    static words_t words;
    add(&words, "stack: ");
    add_number(&words, (uint32_t)gs_board_stack_used());
    add(&words, " of ");
    add_number(&words, (uint32_t)gs_board_stack_bytes());
    add(&words, " bytes used");
    say(words.text);
}

int main(void)
{
    gs_board_init();
    if (gs_identity.magic != IDENTITY_MAGIC) {
        say("no identity in flash: this node knows neither its number nor its experiment");
        gs_board_halt();
    }
    start();
    run();
    say_stack();
    return 0;
}
