/* Error codes of the core. Their names, numbers and texts come from one table, GS_ERRORS in gs_spec.h. */
#ifndef GS_ERR_H
#define GS_ERR_H

#include "gs_spec.h"

/* GS_OK is 0; GS_ERR_... are negative and keep their numbers for ever. */
typedef enum {
#define GS_ERR_ENUM(name, code, text) GS_##name = code,
    GS_ERRORS(GS_ERR_ENUM)
#undef GS_ERR_ENUM
} gs_err_t;

/* Name ("ERR_CONFIG") and sentence of a code; "ERR_UNKNOWN" and a sentence for numbers that are none. Never NULL. */
const char *gs_err_name(gs_err_t err);
const char *gs_err_text(gs_err_t err);

#endif
