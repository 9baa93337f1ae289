/* SPDX-License-Identifier: MIT */
/*
 * Small files of settings, read whole. One that is missing says nothing; one that cannot be read is
 * an error.
 */
#include "fetch/http_credentials.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { FILE_MAX = 1 << 20 };

static const char blanks[] = " \t\r\n";

const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value == NULL || *value == '\0' ? NULL : value;
}

static bool is_true(const char *value)
{
    static const char *const words[] = {"1", "on", "yes", "true"};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (strcasecmp(value, words[i]) == 0)
            return true;
    }
    return false;
}

bool environment_is_true(const char *name)
{
    const char *value = environment(name);
    return value != NULL && is_true(value);
}

/* Returns "DIRECTORY/NAME", malloc'ed, in the home directory of the environment; NULL: there is
 * none, or out of memory. */
static char *home_path(const char *name)
{
    const char *home = environment("HOME");
    char *path;
    return home == NULL || asprintf(&path, "%s/%s", home, name) < 0 ? NULL : path;
}

/*
 * Reads a file as text. *ret is malloc'ed, NULL when there is no such file. err
 * gets a sentence for one that cannot be read, or is longer than 1 MiB.
 */
static int textfile_read(const char *path, char **ret, struct wfs_error *err)
{
    struct stat st;
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *ret = NULL;
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return wfs_fail(err, errno, "cannot read '%s': %s", wfs_quote(path).text, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX)
        return wfs_fail(err, EINVAL, "'%s' is not a file of at most 1 MiB", wfs_quote(path).text);
    autofree char *text = malloc((size_t)st.st_size + 1);
    if (text == NULL)
        return wfs_fail_memory(err);
    const ssize_t n = io_read_at(fd, text, (size_t)st.st_size, 0);
    if (n < 0)
        return wfs_fail(err, (int)-n, "cannot read '%s': %s", wfs_quote(path).text,
                        strerror((int)-n));
    text[n] = '\0';
    *ret = steal(&text);
    return 0;
}

/* ---- AWS ---- */

/* The files have sections in brackets and lines "KEY = VALUE"; a line that begins with a blank
 * belongs to the one before, which has no value of its own. */

/* The two files, and which profile is used. */
struct profile {
    const char *name, *variable; /* that names it; NULL: no variable does */
    char *credentials, *config;
};

static void profile_done(struct profile *profile)
{
    free(profile->credentials);
    free(profile->config);
}

/* A line without its end and the blanks around it. */
struct line {
    const char *text;
    size_t n_bytes;
};

static void trim(struct line *line)
{
    while (line->n_bytes > 0 && isspace((unsigned char)*line->text)) {
        line->text++;
        line->n_bytes--;
    }
    while (line->n_bytes > 0 && isspace((unsigned char)line->text[line->n_bytes - 1]))
        line->n_bytes--;
}

/* Takes the next line. Returns false at the end. */
static bool take_line(const char **text, struct line *ret)
{
    if (**text == '\0')
        return false;
    *ret = (struct line){*text, strcspn(*text, "\n")};
    *text += ret->n_bytes;
    *text += **text == '\n' ? 1 : 0;
    return true;
}

static bool line_is(struct line line, const char *text)
{
    trim(&line);
    return line.n_bytes == strlen(text) && memcmp(line.text, text, line.n_bytes) == 0;
}

/* What is looked for in a file. */
struct wanted {
    const char *kind;   /* of the section "[KIND NAME]"; NULL: "[NAME]" */
    const char *name;   /* which may be in quotes behind a kind */
    const char *parent; /* the key whose lines it is among; NULL: none */
    const char *key;    /* NULL: the section itself */
};

static bool is_section(const struct line *line, const struct wanted *wanted)
{
    const char *end = memchr(line->text, ']', line->n_bytes);
    if (end == NULL)
        return false;
    struct line name = {line->text + 1, (size_t)(end - line->text - 1)};
    trim(&name);
    if (wanted->kind == NULL)
        return line_is(name, wanted->name);
    const size_t n_kind = strlen(wanted->kind);
    if (name.n_bytes <= n_kind || memcmp(name.text, wanted->kind, n_kind) != 0 ||
        !isspace((unsigned char)name.text[n_kind]))
        return false;
    name.text += n_kind;
    name.n_bytes -= n_kind;
    trim(&name);
    const char quote = *name.text;
    if (name.n_bytes >= 2 && (quote == '"' || quote == '\'') &&
        name.text[name.n_bytes - 1] == quote)
        return name.n_bytes - 2 == strlen(wanted->name) &&
               memcmp(name.text + 1, wanted->name, name.n_bytes - 2) == 0;
    return line_is(name, wanted->name);
}

/* Finds a value, malloc'ed, or a section. Returns true when it exists, with *ret NULL if memory ran
 * out. */
static bool find(const char *text, const struct wanted *wanted, char **ret)
{
    bool is_in = false, is_among = false;
    struct line line;
    *ret = NULL;
    while (text != NULL && take_line(&text, &line)) {
        const bool is_nested = line.n_bytes > 0 && isspace((unsigned char)*line.text);
        if (line.n_bytes > 0 && *line.text == '[') {
            is_in = is_section(&line, wanted);
            is_among = false;
            if (is_in && wanted->key == NULL)
                return true;
            continue;
        }
        const char *equals = memchr(line.text, '=', line.n_bytes);
        if (!is_in || wanted->key == NULL || equals == NULL || *line.text == '#' ||
            *line.text == ';')
            continue;
        const struct line key = {line.text, (size_t)(equals - line.text)};
        if (!is_nested)
            is_among = wanted->parent != NULL && line_is(key, wanted->parent);
        if (is_nested ? !is_among : wanted->parent != NULL)
            continue;
        if (!line_is(key, wanted->key))
            continue;
        struct line value = {equals + 1, line.n_bytes - (size_t)(equals + 1 - line.text)};
        trim(&value);
        *ret = strndup(value.text, value.n_bytes);
        return true;
    }
    return false;
}

/* Finds a value of the profile in either file, as `find` does. */
static bool find_value(const struct profile *profile, const char *parent, const char *key,
                       char **ret)
{
    const bool is_default = strcmp(profile->name, "default") == 0;
    return find(profile->credentials, &(struct wanted){NULL, profile->name, parent, key}, ret) ||
           find(profile->config, &(struct wanted){"profile", profile->name, parent, key}, ret) ||
           (is_default &&
            find(profile->config, &(struct wanted){NULL, profile->name, parent, key}, ret));
}

static int read_file(const char *variable, const char *usual, char **ret, struct wfs_error *err)
{
    const char *path = environment(variable);
    autofree char *home = path == NULL ? home_path(usual) : NULL;
    path = path == NULL ? home : path;
    return path == NULL ? 0 : textfile_read(path, ret, err);
}

static int read_profile(struct profile *profile, struct wfs_error *err)
{
    static const char *const variables[] = {"AWS_DEFAULT_PROFILE", "AWS_PROFILE"};
    profile->name = "default";
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables) && profile->variable == NULL;
         i++) {
        profile->variable = environment(variables[i]) == NULL ? NULL : variables[i];
        profile->name = profile->variable == NULL ? "default" : environment(variables[i]);
    }
    int rc =
        read_file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", &profile->credentials, err);
    if (rc == 0)
        rc = read_file("AWS_CONFIG_FILE", ".aws/config", &profile->config, err);
    char *none;
    if (rc == 0 && profile->variable != NULL && !find_value(profile, NULL, NULL, &none))
        return wfs_fail(err, EINVAL,
                        "%s names the profile '%s', which is neither in ~/.aws/credentials nor in "
                        "~/.aws/config",
                        profile->variable, wfs_quote(profile->name).text);
    return rc;
}

/* One text, and where it comes from, the first that has it: two variables, a key of the profile.
 * NULL: not from there. */
struct origin {
    char **ret;
    const char *variable, *other, *key;
};

static int take(const struct origin *origin, const struct profile *profile)
{
    const char *value = origin->variable == NULL ? NULL : environment(origin->variable);
    if (value == NULL && origin->other != NULL)
        value = environment(origin->other);
    if (value != NULL)
        *origin->ret = strdup(value);
    const bool is_there = value != NULL || (origin->key != NULL &&
                                            find_value(profile, NULL, origin->key, origin->ret));
    return is_there && *origin->ret == NULL ? -ENOMEM : 0;
}

/* Returns whether keys are in variables, which nothing goes before. */
static bool has_variables(void)
{
    return environment("AWS_ACCESS_KEY_ID") != NULL || environment("AWS_SECRET_ACCESS_KEY") != NULL;
}

static int refuse(const char *who, const char *how, struct wfs_error *err)
{
    return wfs_fail(err, EINVAL,
                    "%s gets its keys by %s, which is not supported; set AWS_ACCESS_KEY_ID, "
                    "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN",
                    who, how);
}

static int refuse_variable(const char *name, struct wfs_error *err)
{
    return environment(name) == NULL ? 0 : refuse("this environment", name, err);
}

static int refuse_key(const struct profile *profile, const char *key, struct wfs_error *err)
{
    char who[64 + WFS_QUOTE_MAX];
    autofree char *value = NULL;
    if (!find_value(profile, NULL, key, &value))
        return 0;
    snprintf(who, sizeof(who), "the AWS profile '%s'", wfs_quote(profile->name).text);
    return refuse(who, key, err);
}

/*
 * Refuses what the programs of AWS would take keys from before those that were found, in their
 * order: a request by another user, or by nobody, would have another answer.
 */
static int refuse_sources(const struct profile *profile, bool has_keys, struct wfs_error *err)
{
    static const char *const before[] = {"role_arn", "web_identity_token_file", "sso_session",
                                         "sso_start_url"};
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof(before) / sizeof(*before); i++)
        code = refuse_key(profile, before[i], err);
    if (code == 0)
        code = refuse_variable("AWS_WEB_IDENTITY_TOKEN_FILE", err);
    if (code < 0 || has_keys)
        return code;
    code = refuse_key(profile, "credential_process", err);
    if (code == 0)
        code = refuse_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", err);
    return code < 0 ? code : refuse_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI", err);
}

/* Keys go into headers: nothing but visible characters. */
static bool is_visible(const char *text)
{
    for (; text != NULL && *text != '\0'; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

static int check(const struct aws *aws, const struct profile *profile, struct wfs_error *err)
{
    if (!has_variables() &&
        refuse_sources(profile, aws->key != NULL || aws->secret != NULL, err) < 0)
        return -EINVAL;
    if ((aws->key == NULL) != (aws->secret == NULL))
        return wfs_fail(err, EINVAL,
                        "one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set; set "
                        "both or none");
    if (!is_visible(aws->key) || !is_visible(aws->secret) || !is_visible(aws->session))
        return wfs_fail(err, EINVAL,
                        "the AWS keys have blanks or other unusual characters in them");
    const char *region = aws->region;
    if (strlen(region) > 63 ||
        region[strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-")] != '\0' || *region == '\0')
        return wfs_fail(err, EINVAL, "the AWS region '%s' is malformed; set AWS_REGION",
                        wfs_quote(region).text);
    return 0;
}

/* Returns whether a key of the profile is true; found is whether it exists. */
static bool is_set(const struct profile *profile, const char *parent, const char *key)
{
    autofree char *value = NULL;
    return find_value(profile, parent, key, &value) && value != NULL && is_true(value);
}

/* The endpoint is named by a variable, by the services of the profile, or by the profile. */
static int take_endpoint(struct aws *aws, const struct profile *profile)
{
    autofree char *services = NULL;
    const struct origin endpoint = {&aws->endpoint, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL",
                                    NULL};
    if (environment_is_true("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") ||
        is_set(profile, NULL, "ignore_configured_endpoint_urls"))
        return 0;
    int rc = take(&endpoint, profile);
    if (rc < 0 || aws->endpoint != NULL)
        return rc;
    const bool is_there =
        (find_value(profile, NULL, "services", &services) && services != NULL &&
         find(profile->config, &(struct wanted){"services", services, "s3", "endpoint_url"},
              &aws->endpoint)) ||
        find_value(profile, NULL, "endpoint_url", &aws->endpoint);
    return is_there && aws->endpoint == NULL ? -ENOMEM : 0;
}

/* Other servers than those that are asked here would be meant. */
static int refuse_servers(const struct profile *profile, struct wfs_error *err)
{
    static const char *const variables[] = {"AWS_USE_DUALSTACK_ENDPOINT", "AWS_USE_FIPS_ENDPOINT"};
    static const char *const keys[][2] = {{NULL, "use_dualstack_endpoint"},
                                          {"s3", "use_dualstack_endpoint"},
                                          {NULL, "use_fips_endpoint"},
                                          {"s3", "use_accelerate_endpoint"}};
    const char *found = NULL;
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
        found = environment_is_true(variables[i]) ? variables[i] : found;
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        found = is_set(profile, keys[i][0], keys[i][1]) ? keys[i][1] : found;
    return found == NULL ? 0
                         : wfs_fail(err, EINVAL,
                                    "%s is set, which is not supported; name the server with "
                                    "AWS_ENDPOINT_URL_S3 or endpoint=",
                                    found);
}

static int take_style(struct aws *aws, const struct profile *profile, struct wfs_error *err)
{
    static const char *const names[] = {
        [AWS_STYLE_AUTO] = "auto", [AWS_STYLE_PATH] = "path", [AWS_STYLE_HOST] = "virtual"};
    autofree char *value = NULL;
    if (!find_value(profile, "s3", "addressing_style", &value) || value == NULL)
        return 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (strcmp(value, names[i]) == 0) {
            aws->style = (enum aws_style)i;
            return 0;
        }
    }
    return wfs_fail(err, EINVAL, "addressing_style in ~/.aws/config must be auto, path or virtual");
}

/* Keys come from one place, all of them. */
static int take_all(struct aws *aws, const struct profile *profile)
{
    const struct origin from_environment[] = {
        {&aws->key, "AWS_ACCESS_KEY_ID", NULL, NULL},
        {&aws->secret, "AWS_SECRET_ACCESS_KEY", NULL, NULL},
        {&aws->session, "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", NULL},
    };
    const struct origin from_profile[] = {
        {&aws->key, NULL, NULL, "aws_access_key_id"},
        {&aws->secret, NULL, NULL, "aws_secret_access_key"},
        {&aws->session, NULL, NULL, "aws_session_token"},
    };
    const struct origin region = {&aws->region, "AWS_REGION", "AWS_DEFAULT_REGION", "region"};
    const bool has_keys = has_variables();
    int rc = take(&region, profile);
    if (rc == 0 && aws->endpoint == NULL)
        rc = take_endpoint(aws, profile);
    for (size_t i = 0; i < sizeof(from_profile) / sizeof(*from_profile) && rc == 0; i++)
        rc = take(has_keys ? &from_environment[i] : &from_profile[i], profile);
    return rc;
}

/* Reads all of it. An endpoint that is not NULL goes before all others. -EINVAL: err says what to
 * set; -ENOMEM. aws_done is due in any case. */
static int aws_read(struct aws *aws, const char *endpoint, struct wfs_error *err)
{
    struct profile profile cleanup(profile_done) = {0};
    const int rc = read_profile(&profile, err);
    if (rc < 0)
        return rc;
    if ((endpoint != NULL && (aws->endpoint = strdup(endpoint)) == NULL) ||
        take_all(aws, &profile) < 0 ||
        (aws->region == NULL && (aws->region = strdup("us-east-1")) == NULL))
        return wfs_fail_memory(err);
    if (take_style(aws, &profile, err) < 0 ||
        (aws->endpoint == NULL && refuse_servers(&profile, err) < 0))
        return -EINVAL;
    return check(aws, &profile, err);
}

static void aws_done(struct aws *aws)
{
    char **const texts[] = {&aws->key, &aws->secret, &aws->session, &aws->region, &aws->endpoint};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        cleanup_free(texts[i]);
        *texts[i] = NULL;
    }
}

/* ---- the Hub ---- */

/* Returns where the Hub's programs keep the token, malloc'ed, or NULL. */
static char *token_path(void)
{
    const char *path = environment("HF_TOKEN_PATH"), *home = environment("HF_HOME"),
               *cache = environment("XDG_CACHE_HOME");
    char *ret;
    if (path != NULL)
        return strdup(path);
    if (home == NULL && cache == NULL)
        return home_path(".cache/huggingface/token");
    const int n = home != NULL ? asprintf(&ret, "%s/token", home)
                               : asprintf(&ret, "%s/huggingface/token", cache);
    return n < 0 ? NULL : ret;
}

/* Copies a token without the blanks around it; it goes into a header. */
static int take_token(const char *text, char **ret, struct wfs_error *err)
{
    text += strspn(text, blanks);
    size_t n = strlen(text);
    while (n > 0 && strchr(blanks, text[n - 1]) != NULL)
        n--;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return wfs_fail(err, EINVAL,
                            "the token of the Hub has blanks or other unusual "
                            "characters in it; set HF_TOKEN");
    *ret = n == 0 ? NULL : strndup(text, n);
    return n > 0 && *ret == NULL ? -ENOMEM : 0;
}

static int read_hub(struct http_credentials *credentials)
{
    struct wfs_error *err = &credentials->hub_problem;
    const char *hub = environment("HF_ENDPOINT"), *token = environment("HF_TOKEN");
    credentials->hub = strdup(hub == NULL ? HTTP_HUB_USUAL : hub);
    if (credentials->hub == NULL)
        return -ENOMEM;
    for (size_t n = strlen(credentials->hub); n > 0 && credentials->hub[n - 1] == '/'; n--)
        credentials->hub[n - 1] = '\0';
    static const char *const offline[] = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"};
    for (size_t i = 0; i < sizeof(offline) / sizeof(*offline); i++) {
        if (environment_is_true(offline[i]))
            return wfs_fail(err, EINVAL,
                            "%s is set: nothing is fetched from the Hub, and its cache does not "
                            "have it; unset %s, or download it first",
                            offline[i], offline[i]);
    }
    if (environment_is_true(HUB_NO_TOKEN))
        return 0;
    if (token == NULL)
        token = environment("HUGGING_FACE_HUB_TOKEN");
    if (token != NULL)
        return take_token(token, &credentials->hub_token, err);
    autofree char *path = token_path(), *text = NULL;
    if (path == NULL || textfile_read(path, &text, err) < 0 || text == NULL)
        return 0;
    return take_token(text, &credentials->hub_token, err);
}

int http_credentials_read(struct http_credentials *credentials, const char *endpoint)
{
    autofree char *netrc = home_path(".netrc");
    int rc = aws_read(&credentials->aws, endpoint, &credentials->aws_problem);
    if (rc != -ENOMEM)
        rc = read_hub(credentials);
    if (rc != -ENOMEM && netrc != NULL)
        rc = textfile_read(netrc, &credentials->netrc, NULL);
    return rc == -ENOMEM ? rc : 0;
}

void http_credentials_done(struct http_credentials *credentials)
{
    aws_done(&credentials->aws);
    free(credentials->hub);
    free(credentials->hub_token);
    free(credentials->netrc);
    *credentials = (struct http_credentials){0};
}

/* ---- .netrc ---- */

/* Words between blanks; one in double quotes may have blanks and backslashes in it. A macro goes up
 * to the next empty line. */

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
            const char *end = strstr(text, "\n\n");
            text = end == NULL ? text + strlen(text) : end;
        }
    }
    if (rc == 0 && is_found(&entry, login)) {
        *ret_user = steal(&entry.user);
        *ret_password = steal(&entry.password);
    }
    return rc;
}
