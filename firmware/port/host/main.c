/* The node as a process: frames over an inherited socket, COBS-coded as on a UART; checkpoints as files.

       gossamer-node ID IMAGE FD [STATE_FOLDER]
       gossamer-node --print-arena IMAGE

   Built with GS_EXPERIMENT and what `gossamer codegen EXP.toml` wrote, the program holds its image: it reads no file, and
   IMAGE is only a name.

   The first 32 bytes that come over FD are the run key. The process ends when the other side closes FD, or on STOP: so
   it never outlives who started it. The second form prints the memory that a node needs, "bytes part" a line. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gs_cobs.h"
#include "gs_node.h"
#ifdef GS_EXPERIMENT
#include "experiment.h"
#endif

#define PATH_BYTES 4096
#define READ_BYTES 4096
#define HELLO_EVERY_MS 2000

typedef struct {
    int fd;
    uint16_t id;
    const char *state_folder; /* NULL: no checkpoints */
    uint8_t *encoded;         /* room for a delimiter and the longest frame, encoded */
} host_t;

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "gossamer-node: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static bool write_all(int fd, const uint8_t *data, size_t len)
{
    while (len) {
        const ssize_t done = write(fd, data, len);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return false;
        }
        data += done;
        len -= (size_t)done;
    }
    return true;
}

/* --- the node's port -------------------------------------------------------------------------------------------- */

static void on_send(void *ctx, const uint8_t *frame, size_t len)
{
    const host_t *host = ctx;
    host->encoded[0] = 0; /* what was on the line before must not swallow the frame */
    if (!write_all(host->fd, host->encoded, 1 + gs_cobs_encode(frame, len, host->encoded + 1))) {
        exit(EXIT_SUCCESS); /* the other side is gone: nobody is left to tell */
    }
}

static bool slot_path(const host_t *host, uint32_t slot, const char *suffix, char path[PATH_BYTES])
{
    const int len =
        snprintf(path, PATH_BYTES, "%s/node-%05u.%u%s", host->state_folder, host->id, (unsigned)slot, suffix);
    return len > 0 && len < PATH_BYTES;
}

/* Write beside the old file, then put it in its place: a cut at any moment, of power too, leaves one of the two whole. */
static gs_err_t on_kv_put(void *ctx, uint32_t slot, const uint8_t *data, size_t len)
{
    char path[PATH_BYTES];
    char partial[PATH_BYTES];
    if (!slot_path(ctx, slot, "", path) || !slot_path(ctx, slot, ".tmp", partial)) {
        return GS_ERR_CHECKPOINT;
    }
    const int fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return GS_ERR_CHECKPOINT;
    }
    const bool written = write_all(fd, data, len) && fsync(fd) == 0;
    const bool closed = close(fd) == 0;
    return written && closed && rename(partial, path) == 0 ? GS_OK : GS_ERR_CHECKPOINT;
}

static size_t on_kv_get(void *ctx, uint32_t slot, uint8_t *data, size_t capacity)
{
    char path[PATH_BYTES];
    FILE *file = slot_path(ctx, slot, "", path) ? fopen(path, "rb") : NULL;
    if (!file) {
        return 0;
    }
    const size_t len = fread(data, 1, capacity, file);
    fclose(file);
    return len;
}

static void on_log(void *ctx, const char *text)
{
    fprintf(stderr, "gossamer-node %u: %s\n", ((const host_t *)ctx)->id, text);
}

/* --- starting --------------------------------------------------------------------------------------------------- */

static int parse_number(const char *name, const char *text, long max)
{
    char *end;
    errno = 0;
    const long number = strtol(text, &end, 10);
    if (errno || end == text || *end || number < 0 || number > max) {
        fprintf(stderr, "gossamer-node: %s: \"%s\" is no number from 0 to %ld\n", name, text, max);
        exit(EXIT_FAILURE);
    }
    return (int)number;
}

#ifdef GS_EXPERIMENT

static const uint8_t *find_image(const char *path, size_t *len)
{
    (void)path;
    *len = sizeof gs_experiment_image;
    return gs_experiment_image;
}

#else

static const uint8_t *find_image(const char *path, size_t *len)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0) {
        fail(path, strerror(errno));
    }
    if (about.st_size == 0) {
        fail(path, "empty");
    }
    *len = (size_t)about.st_size;
    void *image = mmap(NULL, *len, PROT_READ, MAP_PRIVATE, fd, 0);
    if (image == MAP_FAILED) {
        fail(path, strerror(errno));
    }
    close(fd);
    return image;
}

#endif

static void load_config(gs_config_t *config, const char *path, const uint8_t *image, size_t image_len)
{
    uint32_t bad_word;
    const gs_err_t err = gs_config_load(config, image, image_len, &bad_word);
    if (err) {
        fprintf(stderr, "gossamer-node: %s: %s", path, gs_err_text(err));
        fprintf(stderr, err == GS_ERR_CONFIG ? " (word %u)\n" : "\n", (unsigned)bad_word);
        exit(EXIT_FAILURE);
    }
}

static void print_arena(const gs_config_t *config)
{
    gs_arena_part_t parts[GS_ARENA_PARTS];
    size_t n_parts;
    const size_t bytes = gs_node_arena_bytes(config, parts, &n_parts);
    for (size_t i = 0; i < n_parts; ++i) {
        printf("%zu %s\n", parts[i].bytes, parts[i].name);
    }
    printf("%zu node\n%zu total\n", sizeof(gs_node_t), bytes + sizeof(gs_node_t));
}

static void read_key(int fd, uint8_t key[GS_KEY_BYTES])
{
    for (size_t held = 0; held < GS_KEY_BYTES;) {
        const ssize_t got = read(fd, key + held, GS_KEY_BYTES - held);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            fail("run key", got < 0 ? strerror(errno) : "the other side closed before sending it");
        }
        held += (size_t)got;
    }
}

/* --- running ---------------------------------------------------------------------------------------------------- */

/* Wait for bytes, hand on the frames in them; false at the end of the stream. */
static bool receive(gs_node_t *node, gs_cobs_t *cobs, int fd)
{
    uint8_t bytes[READ_BYTES];
    const ssize_t got = read(fd, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) {
        return true;
    }
    for (ssize_t i = 0; i < got; ++i) {
        const uint32_t garbage = cobs->garbage;
        if (gs_cobs_feed(cobs, bytes[i])) {
            (void)gs_node_on_frame(node, cobs->buffer, cobs->len);
        }
        gs_node_note_garbage(node, cobs->garbage - garbage);
    }
    return got > 0;
}

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    return poll(&waiting, 1, timeout_ms) > 0;
}

/* While there is work, look for bytes between two pieces of it; else sleep until some come. Until HELLO is answered it is
   said again and again; afterwards that does nothing. */
static void run(gs_node_t *node, gs_cobs_t *cobs, int fd)
{
    while (!gs_node_stopped(node)) {
        const bool busy = gs_node_step(node);
        if (is_readable(fd, busy ? 0 : HELLO_EVERY_MS)) {
            if (!receive(node, cobs, fd)) {
                return;
            }
        } else if (!busy) {
            gs_node_hello(node);
        }
    }
}

int main(int argc, char **argv)
{
    static gs_node_t node;
    gs_config_t config;
    size_t image_len;
    const bool only_print = argc == 3 && strcmp(argv[1], "--print-arena") == 0;
    if (!only_print && (argc < 4 || argc > 5)) {
        fail("usage", "gossamer-node ID IMAGE FD [STATE_FOLDER], or gossamer-node --print-arena IMAGE");
    }
    const uint8_t *image = find_image(argv[2], &image_len);
    load_config(&config, argv[2], image, image_len);
    if (only_print) {
        print_arena(&config);
        return EXIT_SUCCESS;
    }

    /* As on a board: everything is taken once, at the start. */
    const size_t arena_len = gs_node_arena_bytes(&config, NULL, NULL);
    void *arena = malloc(arena_len);
    uint8_t *decoded = malloc(config.mtu);
    host_t host = {
        .fd = parse_number("FD", argv[3], INT_MAX),
        .id = (uint16_t)parse_number("ID", argv[1], (long)config.nodes - 1),
        .state_folder = argc > 4 ? argv[4] : NULL,
        .encoded = malloc(1 + GS_COBS_BYTES(config.mtu)),
    };
    if (!arena || !decoded || !host.encoded) {
        fail("memory", "out of it");
    }
    signal(SIGPIPE, SIG_IGN); /* write() says it, too */

    const gs_port_t port = {&host, on_send, host.state_folder ? on_kv_put : NULL, host.state_folder ? on_kv_get : NULL,
                            on_log};
    uint8_t key[GS_KEY_BYTES];
    gs_cobs_t cobs;
    gs_cobs_init(&cobs, decoded, config.mtu);
    read_key(host.fd, key);
    const gs_err_t err = gs_node_init(&node, host.id, key, &port, image, image_len, arena, arena_len);
    if (err) {
        fail("start", gs_err_text(err));
    }
    run(&node, &cobs, host.fd);
    free(host.encoded);
    free(decoded);
    free(arena);
    return EXIT_SUCCESS;
}
