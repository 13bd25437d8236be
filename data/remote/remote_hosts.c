/* Remembers hosts that have answered this process. An unreachable host that is not among them is
 * probably misspelt, or this machine has no network, so it is retried less often. */
#include "data/remote/remote.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer hosts; /* one per line: "https://a:1\nhttps://b\n" */

/* Scheme, host and port of a URL with a newline: "https://a:1\n". Release with memory_free. */
static char *host_of(const char *url)
{
    const char *host = strstr(url, "://");
    size_t scheme = host ? (size_t)(host - url) + 3 : 0;
    return string_format("%.*s\n", (int)(scheme + strcspn(url + scheme, "/?#")), url);
}

static bool is_known_host(const char *host)
{
    const char *found = hosts.data;
    while (found && (found = strstr(found, host)) && found > hosts.data && found[-1] != '\n')
        found++;
    return found != NULL;
}

void remote_host_answers(const char *url)
{
    char *host = host_of(url);
    pthread_mutex_lock(&lock);
    if (!is_known_host(host))
        buffer_append(&hosts, host, (i64)strlen(host));
    pthread_mutex_unlock(&lock);
    memory_free(host);
}

bool remote_host_has_answered(const char *url)
{
    char *host = host_of(url);
    pthread_mutex_lock(&lock);
    bool known = is_known_host(host);
    pthread_mutex_unlock(&lock);
    memory_free(host);
    return known;
}
