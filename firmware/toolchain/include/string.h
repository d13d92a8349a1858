/* The only library functions that the core needs; a bare-metal port defines them. */
#ifndef GS_STRING_H
#define GS_STRING_H

#include <stddef.h>

void *memchr(const void *bytes, int value, size_t count);
int memcmp(const void *a, const void *b, size_t count);
void *memcpy(void *restrict to, const void *restrict from, size_t count);
void *memmove(void *to, const void *from, size_t count);
void *memset(void *to, int value, size_t count);

#endif
