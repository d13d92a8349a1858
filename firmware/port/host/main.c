/* The node as a process: frames over an inherited socket, COBS-coded as on a UART; checkpoints as files.

   gossamer-node ID IMAGE FD [STATE_FOLDER]

   The first 32 bytes that come over FD are the run key. The process ends when the other side closes FD, or on STOP. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gs_cobs.h"
#include "gs_node.h"

#define PATH_BYTES 4096

typedef struct {
    int fd;
    uint16_t id;
    const char *state_folder; /* NULL: no checkpoints */
    uint8_t *encoded;         /* room for the longest frame, encoded */
} host_t;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "gossamer-node: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static void write_all(int fd, const uint8_t *data, size_t len)
{
    while (len) {
        const ssize_t done = write(fd, data, len);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            exit(EXIT_SUCCESS); /* the other side is gone: nobody is left to tell */
        }
        data += done;
        len -= (size_t)done;
    }
}

static void on_send(void *ctx, const uint8_t *frame, size_t len)
{
    const host_t *host = ctx;
    write_all(host->fd, host->encoded, gs_cobs_encode(frame, len, host->encoded));
}

static void slot_path(const host_t *host, uint32_t slot, const char *suffix, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/node-%05u.%u%s", host->state_folder, host->id, (unsigned)slot, suffix);
}

/* Write beside the old file, then put it in its place: a cut at any moment leaves one of the two whole. */
static gs_err_t on_kv_put(void *ctx, uint32_t slot, const uint8_t *data, size_t len)
{
    char path[PATH_BYTES];
    char partial[PATH_BYTES];
    slot_path(ctx, slot, "", path);
    slot_path(ctx, slot, ".tmp", partial);
    const int fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return GS_ERR_CHECKPOINT;
    }
    const bool written = write(fd, data, len) == (ssize_t)len;
    const bool closed = close(fd) == 0;
    return written && closed && rename(partial, path) == 0 ? GS_OK : GS_ERR_CHECKPOINT;
}

static size_t on_kv_get(void *ctx, uint32_t slot, uint8_t *data, size_t capacity)
{
    char path[PATH_BYTES];
    slot_path(ctx, slot, "", path);
    FILE *file = fopen(path, "rb");
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

static const uint8_t *map_image(const char *path, size_t *len)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0 || about.st_size == 0) {
        fail(path, fd < 0 ? strerror(errno) : "empty");
    }
    *len = (size_t)about.st_size;
    void *image = mmap(NULL, *len, PROT_READ, MAP_PRIVATE, fd, 0);
    if (image == MAP_FAILED) {
        fail(path, strerror(errno));
    }
    close(fd);
    return image;
}

static void read_key(int fd, uint8_t key[GS_KEY_BYTES])
{
    for (size_t held = 0; held < GS_KEY_BYTES;) {
        const ssize_t got = read(fd, key + held, GS_KEY_BYTES - held);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            fail("run key", "the other side closed before sending it");
        }
        held += (size_t)got;
    }
}

/* Wait for bytes, hand on the frames in them; false at the end of the stream. */
static bool receive(gs_node_t *node, gs_cobs_t *cobs, int fd)
{
    uint8_t bytes[4096];
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

static bool is_readable(int fd)
{
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    return poll(&waiting, 1, 0) > 0;
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > 5) {
        fail("usage", "gossamer-node ID IMAGE FD [STATE_FOLDER]");
    }
    static gs_node_t node;
    size_t image_len;
    uint32_t bad_word;
    uint8_t key[GS_KEY_BYTES];
    gs_config_t config;
    const uint8_t *image = map_image(argv[2], &image_len);
    gs_err_t err = gs_config_load(&config, image, image_len, &bad_word);
    if (err) {
        fprintf(stderr, "gossamer-node: %s: %s", argv[2], gs_err_text(err));
        fprintf(stderr, err == GS_ERR_CONFIG ? " (word %u)\n" : "\n", (unsigned)bad_word);
        return EXIT_FAILURE;
    }

    host_t host = {
        .fd = atoi(argv[3]),
        .id = (uint16_t)atoi(argv[1]),
        .state_folder = argc > 4 ? argv[4] : NULL,
        .encoded = malloc(GS_COBS_BYTES(config.mtu)),
    };
    const size_t arena_len = gs_node_arena_bytes(&config, NULL, NULL);
    void *arena = malloc(arena_len);
    uint8_t *decoded = malloc(config.mtu);
    if (!arena || !decoded || !host.encoded) {
        fail("memory", "out of it");
    }
    const gs_port_t port = {&host, on_send, host.state_folder ? on_kv_put : NULL, host.state_folder ? on_kv_get : NULL,
                            on_log};
    gs_cobs_t cobs;
    gs_cobs_init(&cobs, decoded, config.mtu);
    read_key(host.fd, key);
    err = gs_node_init(&node, host.id, key, &port, image, image_len, arena, arena_len);
    if (err) {
        fail("start", gs_err_text(err));
    }
    while (!gs_node_stopped(&node)) {
        const bool busy = gs_node_step(&node);
        if ((!busy || is_readable(host.fd)) && !receive(&node, &cobs, host.fd)) {
            break;
        }
    }
    free(host.encoded);
    free(decoded);
    free(arena);
    return EXIT_SUCCESS;
}
