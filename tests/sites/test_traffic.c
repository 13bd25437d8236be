/* A site that listens, and what it says to one that the test plays: over real sockets, at moments that the test
 * chooses. */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "core/thread.h"
#include "sites/journal.h"
#include "sites/traffic.h"
#include "tests/device.h"
#include "tests/ranks.h"
#include "tests/relay.h"
#include "tests/scratch.h"

enum { LAYERS = 2, BITS = 4, HEARS_S = 20, DELAY = 3 };
static struct device device;
static struct weights weights;
static struct fragments fragments;
static struct sites_settings settings;
static const u8 key[LINK_KEY_BYTES] = {7};
static struct json *recipe;

static struct traffic *open_site(int port, const i64 *versions, bool ended)
{
    static char meet[32];
    snprintf(meet, sizeof meet, "127.0.0.1:%d", port);
    settings = (struct sites_settings){.meet = meet, .name = "a", .least = 2};
    struct traffic_start start = {.settings = &settings,
                                  .folder = directory,
                                  .fragments = &fragments,
                                  .hello = recipe,
                                  .versions = versions,
                                  .ended = ended};
    memcpy(start.key, key, sizeof key);
    return traffic_open(&start);
}

/* A part of zeros for all fragments: they have the same size. */
static struct buffer part_of(const char *name)
{
    struct part_sizes sizes = fragment_sizes(&fragments, 0);
    struct part_head head = {.tokens = 1, .bits = BITS, .uses = sizes.uses, .code_bytes = sizes.code_bytes[BITS]};
    struct buffer part = {0};
    u8 *codes = memory_alloc(head.code_bytes);
    snprintf(head.name, sizeof head.name, "%s", name);
    part_write(&part, &head, NULL, codes);
    memory_free(codes);
    return part;
}

/* ---- The other site ---- */

struct guest {
    int socket;
    struct link *link;
};

static void move(struct guest *g)
{
    static char part[1 << 16];
    i64 bytes;
    for (const char *out = link_output(g->link, &bytes); bytes; out = link_output(g->link, &bytes)) {
        ssize_t sent = send(g->socket, out, (size_t)bytes, MSG_NOSIGNAL);
        link_sent(g->link, sent < 0 ? bytes : sent);
    }
    ssize_t got = recv(g->socket, part, sizeof part, MSG_DONTWAIT);
    if (got > 0)
        link_feed(g->link, part, got);
}

static void say(struct guest *g, enum link_kind kind, i64 number, const struct buffer *data)
{
    link_send(g->link, &(struct link_head){(i32)kind, 0, number, 0, data ? data->length : 0}, data ? data->data : NULL);
    move(g);
}

/* Waits for a message of a kind, and passes over others. */
static struct buffer hear(struct guest *g, enum link_kind kind, struct link_head *head)
{
    struct buffer payload;
    for (double end_s = clock_s() + HEARS_S; clock_s() < end_s; poll(NULL, 0, 1)) {
        move(g);
        while (link_next(head, &payload, g->link)) {
            if (head->kind == (i32)kind)
                return payload;
            buffer_release(&payload);
        }
    }
    fail_msg("message %d has not come", kind);
    return (struct buffer){0};
}

static void expect(struct guest *g, enum link_kind kind, i64 number)
{
    struct link_head head;
    struct buffer payload = hear(g, kind, &head);
    assert_int_equal(head.number, number);
    buffer_release(&payload);
}

/* Connects, and greets with the version of the first fragment. */
static struct guest greet(int port, const char *name, i64 version, i64 steps)
{
    struct guest g = {.socket = -1, .link = link_open(key, false)};
    for (double end_s = clock_s() + HEARS_S; g.socket < 0 && clock_s() < end_s; poll(NULL, 0, 1))
        g.socket = relay_connect(port);
    assert_true(g.socket >= 0);
    for (enum link_kind kind = LINK_PLAN; kind < LINK_KINDS; kind++)
        link_allow(g.link, kind, 1 << 20);
    while (!link_greeted(g.link)) {
        move(&g);
        poll(NULL, 0, 1);
    }
    struct json *hello = json_copy(recipe), *versions = json_array();
    struct buffer text = {0};
    for (i64 f = 0; f < fragments.count; f++)
        json_push(versions, json_of_integer(f ? 0 : version));
    json_set(hello, "name", json_of_string(name));
    json_set(hello, "versions", versions);
    struct json *plan = json_object();
    json_set(plan, "steps", json_of_integer(steps));
    json_set(plan, "bits", json_of_integer(steps ? BITS : 0));
    json_set(plan, "delay", json_of_integer(DELAY));
    json_set(hello, "plan", plan);
    json_print(&text, hello, 0);
    say(&g, LINK_HELLO, 0, &text);
    buffer_release(&text);
    json_free(hello);
    return g;
}

static void leave(struct guest *g)
{
    close(g->socket);
    link_close(g->link);
}

static i64 omitted_in(struct guest *g)
{
    struct link_head head;
    struct part_sizes sizes = fragment_sizes(&fragments, 0);
    struct record record;
    struct buffer text = hear(g, LINK_ROUND, &head);
    assert_int_equal(record_read(&record, (const u8 *)text.data, text.length, &sizes), 0);
    i64 omitted = record_find(&record, "b")->head.omitted;
    buffer_release(&text);
    return omitted;
}

/* ---- Tests ---- */

/* Of a round that is open, and of one that was closed in an earlier life of this site. */
TEST(parts_that_are_missing_are_asked_for)
{
    int port = ranks_free_port();
    struct traffic *t = open_site(port, (i64[FRAGMENTS_MOST]){0}, false);
    struct guest b = greet(port, "b", 0, 0);
    expect(&b, LINK_NEED, 1);
    leave(&b);
    b = greet(port, "b", 1, 0);
    expect(&b, LINK_NEED, 1);
    leave(&b);
    traffic_close(t, false);
}

/* A site leaves out codes that the other one has, but not those of its earlier life. */
TEST(codes_of_an_earlier_connection_come_back)
{
    struct buffer own = part_of("a"), theirs = part_of("b");
    for (i64 again = 0; again < 2; again++) {
        int port = ranks_free_port();
        struct buffer part = {0};
        struct traffic *t = open_site(port, (i64[FRAGMENTS_MOST]){again * 100}, false);
        struct guest b = greet(port, "b", again * 100, 0);
        expect(&b, LINK_WELCOME, 0);
        say(&b, LINK_PART, again * 100 + 1, &theirs);
        if (again) {
            leave(&b);
            b = greet(port, "b", 100, 0);
            expect(&b, LINK_WELCOME, 0);
        }
        buffer_append(&part, own.data, own.length);
        traffic_part(t, 0, again * 100 + 1, &part);
        assert_int_equal(omitted_in(&b), !again);
        leave(&b);
        traffic_close(t, false);
    }
    buffer_release(&own);
    buffer_release(&theirs);
}

TEST(a_round_that_is_kept_no_more_is_said_to_be_lost)
{
    int port = ranks_free_port();
    struct buffer theirs = part_of("b");
    struct traffic *t = open_site(port, (i64[FRAGMENTS_MOST]){50}, false);
    struct guest b = greet(port, "b", 48, 0);
    expect(&b, LINK_WELCOME, 0);
    say(&b, LINK_PART, 49, &theirs);
    expect(&b, LINK_LOST, 49);
    leave(&b);
    traffic_close(t, false);
    buffer_release(&theirs);
}

TEST(the_plan_of_a_guest_is_taken)
{
    int port = ranks_free_port();
    struct traffic *t = open_site(port, (i64[FRAGMENTS_MOST]){0}, false);
    struct link_head head;
    struct guest b = greet(port, "b", 0, 17);
    struct buffer text = hear(&b, LINK_PLAN, &head);
    struct json *plan = json_parse(text.data, text.length, "plan");
    assert_int_equal(json_integer(json_get(plan, "steps"), 0), 17);
    assert_int_equal(json_integer(json_get(plan, "bits"), 0), BITS);
    assert_int_equal(json_integer(json_get(plan, "delay"), 0), DELAY);
    json_free(plan);
    buffer_release(&text);
    leave(&b);
    traffic_close(t, false);
}

static void *close_site(void *traffic)
{
    traffic_close(traffic, true);
    return NULL;
}

/* The link breaks before word of the end has come: this site waits for the other one to come again. */
TEST(a_site_ends_when_others_know_that_all_are_done)
{
    int port = ranks_free_port();
    pthread_t thread;
    struct traffic *t = open_site(port, (i64[FRAGMENTS_MOST]){0}, false);
    struct guest b = greet(port, "b", 0, 0);
    expect(&b, LINK_WELCOME, 0);
    say(&b, LINK_DONE, 0, NULL);
    while (!traffic_done(t))
        poll(NULL, 0, 1);
    leave(&b);
    thread_start(&thread, close_site, t, "to close a site");
    poll(NULL, 0, 50);
    b = greet(port, "b", 0, 0);
    expect(&b, LINK_DONE, 0);
    say(&b, LINK_DONE, 0, NULL);
    say(&b, LINK_BYE, 0, NULL);
    pthread_join(thread, NULL);
    leave(&b);
}

/* A site that was killed when it had ended comes again to say so. */
TEST(a_site_that_has_ended_tells_the_others)
{
    int port = ranks_free_port();
    struct traffic *t = open_site(port, (i64[FRAGMENTS_MOST]){3}, true);
    struct guest b = greet(port, "b", 3, 0);
    expect(&b, LINK_DONE, 0);
    leave(&b);
    traffic_close(t, false);
}

static int open_all(void **state)
{
    char name[16];
    setenv("WEFT_THREADS", "1", 1);
    workers_start(1);
    device_open_cpu(&device);
    struct weights_layout place = parallel_place(&parallel_alone()->layout, 0);
    place.layers = LAYERS;
    weights_open(&weights, &device, DTYPE_F32, true, &place);
    for (i64 layer = -1; layer <= LAYERS; layer++) {
        struct weight_spec spec = weight_matrix("rows", 8, 72);
        snprintf(name, sizeof name, "rows.%lld", (long long)layer);
        spec.name = spec.pieces[0].name = name;
        spec.layer = layer;
        weights_add(&weights, &spec);
    }
    weights_allocate(&weights);
    fragments_open(&fragments, &weights, parallel_alone(), LAYERS, 0);
    recipe = json_object();
    json_set(recipe, "sites", json_of_integer(1));
    return make_directory(state) || journal_make_rounds(directory);
}

static int close_all(void **state)
{
    json_free(recipe);
    fragments_close(&fragments);
    weights_close(&weights);
    device_close(&device);
    return remove_directory(state);
}

int main(void)
{
    return tests_run(open_all, close_all);
}
