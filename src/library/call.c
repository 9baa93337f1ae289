/* SPDX-License-Identifier: MIT */
/*
 * A member of the options that the caller's header does not have yet is 0.
 */
#include "library/call.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void call_clear(struct wfs_error *err)
{
    if (err != NULL) {
        err->code = 0;
        err->text[0] = '\0';
    }
}

int call_fail(struct wfs_error *err, const char *path, const struct wfs_error *what)
{
    autostrbuf struct strbuf name = {0};
    if (path != NULL) {
        strbuf_escape(&name, path, strlen(path));
        strbuf_puts(&name, ": ");
    }
    return name.has_failed
               ? wfs_fail_memory(err)
               : wfs_fail(err, what->code, "%s%s", path != NULL ? name.bytes : "", what->text);
}

int call_text(struct strbuf *text, char **out, struct wfs_error *err)
{
    if (text->has_failed) {
        strbuf_done(text);
        return wfs_fail_memory(err);
    }
    *out = text->bytes;
    return 0;
}

int call_step(const struct call *call, uint64_t n_done, uint64_t n_total)
{
    const struct wfs_options *options = &call->options;
    return options->progress != NULL && options->progress(options->ctx, n_done, n_total) != 0
               ? -EINTR
               : 0;
}

void call_notice(const struct call *call, const char *format, ...)
{
    char text[WFS_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    wfs_format(text, sizeof(text), format, args);
    va_end(args);
    if (call->options.notice != NULL)
        call->options.notice(call->options.ctx, text);
}

static bool is_stopped(void *ctx)
{
    struct call *call = ctx;
    call->is_stopped = call->is_stopped || call_step(call, 0, 0) < 0;
    return call->is_stopped;
}

/* ---- options ---- */

static const char *view_option(const char *name, size_t n_name)
{
    const struct wfs_view_option *option;
    for (size_t i = 0; (option = wfs_view_option(i)) != NULL; i++) {
        if (settings_is_name(option->name, name, n_name))
            return option->name;
    }
    return NULL;
}

static int refuse(const char *text, unsigned takes, const char *const *words, struct wfs_error *err)
{
    struct spelling spelling;
    struct setting setting;
    const struct wfs_view_option *view;
    spelling_start(&spelling, text);
    for (size_t i = 0; words != NULL && words[i] != NULL; i++)
        spelling_try(&spelling, words[i]);
    for (size_t i = 0; settings_row(i, &setting); i++) {
        if ((takes & (setting.subject == SETTING_OF_SOURCE ? CALL_SOURCE : CALL_OUTPUT)) != 0)
            spelling_try(&spelling, setting.name);
    }
    for (size_t i = 0; (takes & CALL_SOURCE) != 0 && (view = wfs_view_option(i)) != NULL; i++)
        spelling_try(&spelling, view->name);
    return wfs_fail(err, EINVAL, "unknown option '%s'%s%s%s",
                    wfs_quote_n(text, strcspn(text, "=")).text,
                    spelling.best != NULL ? "; did you mean '" : "",
                    spelling.best != NULL ? spelling.best : "", spelling.best != NULL ? "'?" : "");
}

static int apply_setting(struct call *call, const struct setting *setting, const char *value,
                         struct wfs_error *err)
{
    struct wfs_error own = {0};
    if (value == NULL && settings_needs_value(setting->argument))
        return wfs_fail(err, EINVAL, "%s: needs a value: %s=%s", setting->name, setting->name,
                        setting->argument);
    if (value != NULL && setting->argument == NULL)
        return wfs_fail(err, EINVAL, "%s: takes no value", setting->name);
    return settings_apply(&call->settings, setting, value, &own) < 0
               ? wfs_fail(err, own.code, "%s: %s", setting->name, own.text)
               : 0;
}

/* The names of views have underscores. */
static int apply_view(struct call *call, const char *name, const char *value, struct wfs_error *err)
{
    autofree char *text = NULL;
    if (asprintf(&text, "%s%s%s", name, value != NULL ? "=" : "", value != NULL ? value : "") < 0) {
        text = NULL;
        return wfs_fail_memory(err);
    }
    const int code = wfs_view_add(call->view, text, err);
    return code < 0 ? code : 0;
}

static int apply(struct call *call, const char *text, unsigned takes, const char *const *words,
                 struct wfs_error *err)
{
    const size_t n_name = strcspn(text, "=");
    const char *value = text[n_name] == '=' ? text + n_name + 1 : NULL;
    struct setting setting;
    for (unsigned i = 0; words != NULL && words[i] != NULL; i++) {
        if (settings_is_name(words[i], text, n_name)) {
            call->words |= 1u << i;
            return value == NULL ? 0 : wfs_fail(err, EINVAL, "%s: takes no value", words[i]);
        }
    }
    if (settings_find(text, n_name, &setting) &&
        (takes & (setting.subject == SETTING_OF_SOURCE ? CALL_SOURCE : CALL_OUTPUT)) != 0)
        return apply_setting(call, &setting, value, err);
    if ((takes & CALL_SOURCE) == 0)
        return refuse(text, takes, words, err);
    if (settings_is_name("limit", text, n_name)) {
        if (value == NULL || strchr(value, '=') == NULL)
            return wfs_fail(err, EINVAL, "limit: needs NAME=N");
        call->limits[call->settings.load.n_limits++] = value;
        return 0;
    }
    const char *view = view_option(text, n_name);
    return view != NULL ? apply_view(call, view, value, err) : refuse(text, takes, words, err);
}

int call_init(struct call *call, const struct wfs_options *options, unsigned takes,
              const char *const *words, struct wfs_error *err)
{
    *call = (struct call){0};
    call_clear(err);
    if (options != NULL && options->size < offsetof(struct wfs_options, ctx) + sizeof(void *))
        return wfs_fail(err, EINVAL, "the size of the options is not set");
    if (options != NULL)
        memcpy(&call->options, options,
               options->size < sizeof(*options) ? options->size : sizeof(*options));
    if (call->options.progress != NULL)
        call->io = (struct wfs_io){.is_stopped = is_stopped, .ctx = call};
    call->limits = calloc(call->options.n_texts + 1, sizeof(*call->limits));
    if (call->limits == NULL || ((takes & CALL_SOURCE) != 0 && wfs_view_new(&call->view) < 0))
        return wfs_fail_memory(err);
    call->settings.load.limits = call->limits;
    for (size_t i = 0; i < call->options.n_texts; i++) {
        const int code = apply(call, call->options.texts[i], takes, words, err);
        if (code < 0)
            return code;
    }
    return 0;
}

void call_done(struct call *call)
{
    wfs_view_free(call->view);
    free(call->limits);
    *call = (struct call){0};
}
