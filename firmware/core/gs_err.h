/* What can go wrong: one list of codes, names and texts, kept in gossamer/spec/constants.py. */
#ifndef GS_ERR_H
#define GS_ERR_H

#include "gs_spec.h"

#define GS_ERR_MEMBER(name, code, text) GS_##name = (code),
typedef enum { GS_ERRORS(GS_ERR_MEMBER) } gs_err_t;
#undef GS_ERR_MEMBER

/* The text of a code; never NULL. */
const char *gs_err_text(gs_err_t err);

#endif
