/* s3://BUCKET/KEY: builds URLs and credentials, and parses listings (ListObjectsV2). libcurl makes
 * the signatures. */
#include "data/remote/remote.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEME = 5 /* length of "s3://" */ };

static const char *variable(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

/* Percent-encodes all but letters, digits and the characters in `kept`, as the signature
 * requires. */
static void print_encoded(struct buffer *out, const char *text, const char *kept)
{
    for (const char *c = text; *c; c++)
        if (isalnum((u8)*c) || strchr(kept, *c))
            buffer_append(out, c, 1);
        else
            buffer_printf(out, "%%%02X", (u8)*c);
}

static void set_account(struct http_target *t)
{
    const char *user = variable("AWS_ACCESS_KEY_ID", NULL), *secret = variable("AWS_SECRET_ACCESS_KEY", NULL),
               *token = variable("AWS_SESSION_TOKEN", NULL);
    t->s3 = true;
    if (!user || !secret)
        return;
    t->user = string_copy(user);
    t->secret = string_copy(secret);
    t->token = token ? string_copy(token) : NULL;
    t->signing = string_format("aws:amz:%s:s3", variable("AWS_REGION", variable("AWS_DEFAULT_REGION", "us-east-1")));
}

/* Prints the bucket's URL. Amazon takes the bucket as a host name, unless it has dots, which the
 * wildcard certificate does not cover; other endpoints take it in the path. */
static void print_bucket(struct buffer *url, const char *address)
{
    const char *bucket = address + SCHEME,
               *endpoint = variable("AWS_ENDPOINT_URL_S3", variable("AWS_ENDPOINT_URL", NULL));
    int length = (int)strcspn(bucket, "/");
    const char *region = variable("AWS_REGION", variable("AWS_DEFAULT_REGION", "us-east-1"));
    size_t end = endpoint ? strlen(endpoint) : 0;
    while (end && endpoint[end - 1] == '/')
        end--;
    if (endpoint)
        buffer_printf(url, "%.*s/%.*s", (int)end, endpoint, length, bucket);
    else if (memchr(bucket, '.', (size_t)length))
        buffer_printf(url, "https://s3.%s.amazonaws.com/%.*s", region, length, bucket);
    else
        buffer_printf(url, "https://%.*s.s3.%s.amazonaws.com", length, bucket, region);
}

static const char *key_of(const char *address)
{
    const char *bucket = address + SCHEME, *slash = strchr(bucket, '/');
    return slash ? slash + 1 : "";
}

int http_target_init(struct http_target *t, const char *address)
{
    struct buffer url = {0};
    *t = (struct http_target){0};
    if (strncmp(address, "s3://", SCHEME) != 0) {
        t->url = address_with_query(address);
        return 0;
    }
    set_account(t);
    print_bucket(&url, address);
    buffer_append(&url, "/", 1);
    print_encoded(&url, key_of(address), "-._~/");
    t->url = url.data;
    return 0;
}

void http_target_release(struct http_target *t)
{
    memory_free(t->url);
    memory_free(t->user);
    memory_free(t->secret);
    memory_free(t->token);
    memory_free(t->signing);
    *t = (struct http_target){0};
}

/* ---- Listings ---- */

/* Builds the listing's URL. The signature requires query parameters in alphabetical order. */
int s3_listing_init(struct http_target *t, const char *address, const char *token)
{
    struct buffer url = {0};
    *t = (struct http_target){0};
    set_account(t);
    print_bucket(&url, address);
    buffer_printf(&url, "/?");
    if (token) {
        buffer_printf(&url, "continuation-token=");
        print_encoded(&url, token, "-._~");
        buffer_printf(&url, "&");
    }
    buffer_printf(&url, "list-type=2&prefix=");
    print_encoded(&url, key_of(address), "-._~");
    t->url = url.data;
    return 0;
}

/* Appends a code point as UTF-8. */
static void print_point(struct buffer *out, unsigned long point)
{
    char bytes[4];
    int count = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const u8 marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = count - 1; i > 0; i--, point >>= 6)
        bytes[i] = (char)(0x80 | (point & 0x3f));
    bytes[0] = (char)(marks[count] | point);
    buffer_append(out, bytes, count);
}

/* Takes a character reference, such as &#47; or &#x2f;, and appends its character. One that names
 * no character vanishes. */
static const char *take_reference(struct buffer *out, const char *at)
{
    bool hexadecimal = at[2] == 'x';
    char *behind;
    unsigned long point = strtoul(at + (hexadecimal ? 3 : 2), &behind, hexadecimal ? 16 : 10);
    if (point > 0 && point <= 0x10ffff && (point < 0xd800 || point > 0xdfff))
        print_point(out, point);
    return behind + (*behind == ';');
}

static char *unescape(const char *at, const char *end)
{
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
    struct buffer out = {0};
    buffer_append(&out, "", 0);
    while (at < end) {
        i64 known = 0;
        while (known < 5 && strncmp(at, names[known], strlen(names[known])) != 0)
            known++;
        if (known < 5) {
            buffer_append(&out, &"&<>\"'"[known], 1);
            at += strlen(names[known]);
        } else if (at[0] == '&' && at[1] == '#') {
            at = take_reference(&out, at);
        } else {
            buffer_append(&out, at++, 1);
        }
    }
    return out.data;
}

/* The unescaped text of the first <tag>..</tag> before `end`, or NULL. Release with memory_free. */
static char *element(const char *begin, const char *end, const char *tag)
{
    char *open = string_format("<%s>", tag), *close = string_format("</%s>", tag);
    const char *from = strstr(begin, open), *to = from ? strstr(from, close) : NULL;
    char *value = to && to < end ? unescape(from + strlen(open), to) : NULL;
    memory_free(open);
    memory_free(close);
    return value;
}

/* Adds one object of a listing. Keys that end in a slash are folder markers and are skipped. */
static void read_object(struct remote_list *list, const char *begin, const char *end, const char *address)
{
    char *key = element(begin, end, "Key"), *size = element(begin, end, "Size");
    int bucket = (int)(SCHEME + strcspn(address + SCHEME, "/"));
    if (key && *key && key[strlen(key) - 1] != '/')
        remote_list_add(list, string_format("%.*s/%s", bucket, address, key), size ? strtoll(size, NULL, 10) : 0,
                        element(begin, end, "ETag"));
    memory_free(key);
    memory_free(size);
}

int s3_listing_read(struct remote_list *list, char **token, const struct buffer *page, const char *address)
{
    static const char open[] = "<Contents>", close[] = "</Contents>";
    const char *at = page->data ? page->data : "", *end = at + strlen(at);
    *token = NULL;
    if (!strstr(at, "<ListBucketResult"))
        return error_set("%s: the answer is no listing of a bucket (ListObjectsV2): see AWS_ENDPOINT_URL", address);
    *token = element(at, end, "NextContinuationToken");
    for (const char *to; (at = strstr(at, open)) && (to = strstr(at, close)); at = to)
        read_object(list, at, to, address);
    return 0;
}
