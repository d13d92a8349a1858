#include "gs_err.h"

const char *gs_err_text(gs_err_t err)
{
    switch (err) {
#define GS_ERR_CASE(name, code, text) \
    case GS_##name: \
        return text;
        GS_ERRORS(GS_ERR_CASE)
#undef GS_ERR_CASE
    }
    return "unknown error";
}
