/* SPDX-License-Identifier: MIT */
/*
 * Words between blanks; one in double quotes may have blanks and backslashes in it. A macro goes up
 * to the next empty line.
 */
#include "fetch/netrc.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char blanks[] = " \t\r\n";

/* Takes the next word to buf, which has room for the whole text. Returns false at the end. */
static bool take_word(const char **text, char *buf)
{
    const char *in = *text + strspn(*text, blanks);
    while (*in == '#') { /* a comment */
        in += strcspn(in, "\n");
        in += strspn(in, blanks);
    }
    const bool is_quoted = *in == '"';
    const char *const start = in;
    in += is_quoted ? 1 : 0;
    while (*in != '\0' && (is_quoted ? *in != '"' : strchr(blanks, *in) == NULL)) {
        if (is_quoted && *in == '\\' && in[1] != '\0')
            in++;
        *buf++ = *in++;
    }
    *buf = '\0';
    *text = in + (is_quoted && *in == '"' ? 1 : 0);
    return in > start;
}

static void skip_macro(const char **text)
{
    const char *end = strstr(*text, "\n\n");
    *text = end == NULL ? *text + strlen(*text) : end;
}

struct entry {
    bool is_ours; /* the host is right */
    char *user, *password;
};

static bool is_found(const struct entry *entry, const char *login)
{
    return entry->is_ours && (entry->user != NULL || entry->password != NULL) &&
           (login == NULL || (entry->user != NULL && strcmp(entry->user, login) == 0));
}

static void clear(struct entry *entry)
{
    free(entry->user);
    free(entry->password);
    *entry = (struct entry){0};
}

static int set_word(char **ret, const char *word)
{
    free(*ret);
    *ret = strdup(word);
    return *ret == NULL ? -ENOMEM : 0;
}

int netrc_find(const char *text, const char *host, const char *login, char **ret_user,
               char **ret_password)
{
    struct entry entry cleanup(clear) = {0};
    const size_t n_room = strlen(text) + 1;
    autofree char *word = malloc(n_room), *value = malloc(n_room);
    int rc = word == NULL || value == NULL ? -ENOMEM : 0;
    *ret_user = *ret_password = NULL;
    while (rc == 0 && take_word(&text, word)) {
        const bool is_machine = strcmp(word, "machine") == 0;
        if (is_machine || strcmp(word, "default") == 0) {
            if (is_found(&entry, login))
                break;
            clear(&entry);
            entry.is_ours =
                !is_machine || (take_word(&text, value) && strcasecmp(value, host) == 0);
        } else if (strcmp(word, "login") == 0 && take_word(&text, value)) {
            rc = set_word(&entry.user, value);
        } else if (strcmp(word, "password") == 0 && take_word(&text, value)) {
            rc = set_word(&entry.password, value);
        } else if (strcmp(word, "macdef") == 0) {
            skip_macro(&text);
        }
    }
    if (rc == 0 && is_found(&entry, login)) {
        *ret_user = steal(&entry.user);
        *ret_password = steal(&entry.password);
    }
    return rc;
}
