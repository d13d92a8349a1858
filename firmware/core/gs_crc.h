/* CRC-32 as zlib computes it. */
#ifndef GS_CRC_H
#define GS_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Continue a CRC over more bytes; start with 0. */
uint32_t gs_crc32(uint32_t crc, const void *data, size_t len);

#endif
