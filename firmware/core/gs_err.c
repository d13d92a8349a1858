#include "gs_err.h"

const char *gs_err_name(gs_err_t err)
{
    switch (err) {
#define GS_ERR_NAME(name, code, text) \
    case GS_##name: \
        return #name;
        GS_ERRORS(GS_ERR_NAME)
#undef GS_ERR_NAME
    }
    return "ERR_UNKNOWN";
}

const char *gs_err_text(gs_err_t err)
{
    switch (err) {
#define GS_ERR_TEXT(name, code, text) \
    case GS_##name: \
        return text;
        GS_ERRORS(GS_ERR_TEXT)
#undef GS_ERR_TEXT
    }
    return "a code that this version does not know";
}
