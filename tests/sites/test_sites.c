/* Sites as processes: two end with the same weights, whatever their ranks; runs that are killed, stopped and damaged on
 * the way end with the bits of an undisturbed one; sites come, go and are refused. */
#define _GNU_SOURCE
#include <math.h>
#include <sys/stat.h>

#include "core/json.h"
#include "pipeline/pipeline.h"
#include "train/memory_estimate.h"
#include "tests/files.h"
#include "tests/ranks.h"
#include "tests/relay.h"
#include "tests/shard_fixture.h"

enum { STEPS = 14, SITE_SECONDS_MOST = 300 };
static char *shards, *root; /* root: beside the shards, whose content the run's identity has */

struct site { /* arguments of a site; its processes */
    const char *folder, *name, *layout;
    int ranks, meet; /* meet: a port of this machine */
    const char *more[8];
    pid_t processes[4];
};

static int run_site(void *context)
{
    const struct site *s = context;
    char *recipe = path_join(root, "recipe.yaml"), *words[16] = {recipe};
    struct device device;
    int count = 1;
    words[count++] = string_format("run=%s/%s", root, s->folder);
    words[count++] = string_format("base.sites.name=%s", s->name);
    words[count++] = string_format("base.sites.meet=127.0.0.1:%d", s->meet);
    for (int i = 0; s->more[i]; i++)
        words[count++] = string_copy(s->more[i]);
    device_open_cpu(&device);
    signals_catch();
    struct run_options options = {.words = (const char *const *)words,
                                  .word_count = count,
                                  .layout = s->layout,
                                  .device = &device,
                                  .program = "test"};
    int status = recipe_run(&options);
    if (status < 0)
        fprintf(stderr, "%s\n", error_text());
    return status == STAGE_INTERRUPTED ? 130 : status < 0 ? error_status() : status;
}

static void start(struct site *s)
{
    char *log = string_format("%s/%s.log", root, s->folder);
    int port = ranks_free_port(), ranks = s->ranks ? s->ranks : 1;
    fflush(NULL);
    for (int r = 0; r < ranks; r++) {
        s->processes[r] = fork();
        if (s->processes[r])
            continue;
        int file = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
        require(file >= 0, "no log");
        if (ranks == 1)
            unsetenv("RANK");
        if (ranks > 1)
            ranks_become(r, ranks, port, file, run_site, s);
        for (int number = 1; number < NSIG; number++)
            signal(number, SIG_DFL);
        alarm(SITE_SECONDS_MOST); /* one that waits for ever */
        require(dup2(file, 2) == 2, "no log");
        int status = run_site(s);
        fflush(NULL);
        _exit(status);
    }
    memory_free(log);
}

/* The exit status of all ranks, or of the first that has another than 0. */
static int end(struct site *s)
{
    int status = 0;
    for (int r = 0; r < 4 && s->processes[r]; r++) {
        int how;
        require(waitpid(s->processes[r], &how, 0) == s->processes[r], "no child");
        status = status ? status : ranks_exit_status(how);
        s->processes[r] = 0;
    }
    return status;
}

static int stop(struct site *s, int number)
{
    for (int r = 0; r < 4 && s->processes[r]; r++)
        kill(s->processes[r], number);
    return end(s);
}

static char *log_of(const char *folder)
{
    struct buffer text = {0};
    char *path = string_format("%s/%s.log", root, folder);
    if (file_read(&text, path))
        buffer_append(&text, "", 0);
    memory_free(path);
    return text.data ? text.data : string_copy("");
}

/* None of these tests leaves a site alone at its end. */
static void expect_ends(struct site *s, int expected, const char *says)
{
    int status = end(s);
    char *log = log_of(s->folder);
    if (status != expected || (says && !strstr(log, says)) || strstr(log, "no other site has been here"))
        fail_msg("%s: status %d, expected %d and \"%s\" in: %s", s->folder, status, expected, says ? says : "", log);
    memory_free(log);
}

static bool file_says(const char *folder, const char *file, const char *text)
{
    bool found = false;
    static const char *const places[] = {"base", "base.partial"};
    for (i64 i = 0; i < COUNT_OF(places); i++) {
        struct buffer content = {0};
        char *path = string_format("%s/%s/%s/%s", root, folder, places[i], file);
        found |= file_exists(path) && file_read(&content, path) == 0 && strstr(content.data ? content.data : "", text);
        buffer_release(&content);
        memory_free(path);
    }
    return found;
}

/* Waits until a file of the stage has a text. */
static void await(struct site *s, const char *file, const char *text)
{
    while (!file_says(s->folder, file, text)) {
        require(kill(s->processes[0], 0) == 0 && waitpid(s->processes[0], NULL, WNOHANG) == 0, "%s has ended: %s",
                s->folder, log_of(s->folder));
        poll(NULL, 0, 2);
    }
}

/* Starts a site and waits until it listens, before another one can. */
static void start_listening(struct site *s)
{
    int probe = -1;
    start(s);
    await(s, "metrics.jsonl", "");
    for (; probe < 0; poll(NULL, 0, 2))
        probe = relay_connect(s->meet);
    close(probe);
}

static void expect_same(const char *one, const char *other)
{
    static const char *const files[] = {"base/model.safetensors", "base/weft/extra.safetensors"};
    char *a = path_join(root, one), *b = path_join(root, other);
    for (i64 i = 0; i < COUNT_OF(files); i++)
        expect_same_file(a, b, files[i]);
    memory_free(a);
    memory_free(b);
}

static void run_two(struct site a, struct site b)
{
    a.meet = b.meet = ranks_free_port();
    start(&a);
    start(&b);
    expect_ends(&a, 0, "base: done");
    expect_ends(&b, 0, "base: done");
    expect_same(a.folder, b.folder);
}

TEST(sites_of_any_ranks_end_with_the_same_weights)
{
    run_two((struct site){"plain-a", "a"}, (struct site){"plain-b", "b"});
    assert_true(file_says("plain-a", "sites.jsonl", "\"merged\":[{\"site\":\"a\",\"weight\":0.5"));
    assert_true(file_says("plain-b", "sites.jsonl", "{\"site\":\"b\",\"weight\":0.4"));
    run_two((struct site){"data-a", "a"}, (struct site){"data-b", "b", "data=2", 2});
    run_two((struct site){"expert-a", "a", "expert=2", 2, .more = {"precision=bf16", NULL}},
            (struct site){"expert-b", "b", .more = {"precision=bf16", NULL}});
    run_two(
        (struct site){"each-a", "a", .more = {"base.sites.steps=1", "base.sites.delay=0", "base.sites.bits=32", NULL}},
        (struct site){"each-b", "b", .more = {"base.sites.steps=1", "base.sites.delay=0", "base.sites.bits=32", NULL}});
}

/* One is killed and one is stopped, each more than once, and who listens changes. */
TEST(sites_that_are_killed_and_stopped_end_with_the_same_bits)
{
    struct site a = {"killed-a", "a"}, b = {"killed-b", "b"};
    a.meet = b.meet = ranks_free_port();
    start(&a);
    start(&b);
    await(&a, "metrics.jsonl", "\"step\":7,");
    assert_int_equal(stop(&a, SIGKILL), 128 + SIGKILL);
    assert_int_equal(stop(&b, SIGINT), 130);
    start(&b);
    await(&b, "sites.jsonl", "\"round\"");
    start(&a);
    await(&b, "metrics.jsonl", "\"step\":10,");
    assert_int_equal(stop(&b, SIGKILL), 128 + SIGKILL);
    int stopped = stop(&a, SIGTERM);
    assert_true(stopped == 130 || stopped == 128 + SIGTERM); /* it may just begin */
    start(&a);
    start(&b);
    expect_ends(&a, 0, "base: done");
    expect_ends(&b, 0, "base: done");
    expect_same("killed-a", "plain-a");
    expect_same("killed-b", "plain-a");
}

static void run_over(struct relay relay, const char *folder, const char *says)
{
    char *names[] = {string_format("%s-a", folder), string_format("%s-b", folder)};
    struct site a = {names[0], "a", .meet = ranks_free_port()}, b = {names[1], "b"};
    b.meet = relay.port = ranks_free_port();
    relay.to = a.meet;
    pid_t process = relay_start(relay);
    start_listening(&a);
    start(&b);
    expect_ends(&a, 0, says);
    expect_ends(&b, 0, "base: done");
    relay_end(process);
    expect_same(names[0], "plain-a");
    expect_same(names[1], "plain-a");
    memory_free(names[0]);
    memory_free(names[1]);
}

TEST(a_slow_and_a_damaged_link_change_no_bit)
{
    run_over((struct relay){.delay_s = 0.02}, "slow", "base: done");
    run_over((struct relay){.delay_s = 0.1, .fault = RELAY_DROP}, "dropped", "base: done");
    run_over((struct relay){.fault = RELAY_CUT, .at = 9000}, "cut", "site b has left");
    run_over((struct relay){.fault = RELAY_FLIP, .at = 9000}, "flip", "was changed, repeated or left out");
    run_over((struct relay){.fault = RELAY_FLIP, .at = 20}, "greeting", "it does not have the same key");
}

static bool has(const char *path)
{
    char *whole = path_join(root, path);
    bool is = file_exists(whole);
    memory_free(whole);
    return is;
}

static void await_log(struct site *s, const char *text)
{
    for (bool found = false; !found; poll(NULL, 0, 2)) {
        char *log = log_of(s->folder);
        found = strstr(log, text);
        require(found || waitpid(s->processes[0], NULL, WNOHANG) == 0, "%s has ended: %s", s->folder, log);
        memory_free(log);
    }
}

/* The last merge is the only one here. A site that is stopped while it waits for it goes on with it; one that waits for
 * others to end waits for them again, and has a limit then. */
TEST(a_site_that_is_stopped_at_its_last_merge_goes_on_with_it)
{
    static const char *const more[] = {"base.sites.steps=100", NULL};
    struct site a = {"last-a", "a", .more = {more[0]}}, b = {"last-b", "b", .more = {more[0]}};
    run_two((struct site){"once-a", "a", .more = {more[0]}}, (struct site){"once-b", "b", .more = {more[0]}});
    a.meet = b.meet = ranks_free_port();
    start(&a);
    start(&b);
    await(&a, "metrics.jsonl", "\"step\":1,");
    assert_int_equal(stop(&b, SIGKILL), 128 + SIGKILL);
    await_log(&a, "base: the last merge");
    assert_int_equal(stop(&a, SIGINT), 130);
    start(&a);
    start(&b);
    expect_ends(&a, 0, "resuming from step 14");
    expect_ends(&b, 0, "base: done");
    expect_same("last-a", "once-a");
    expect_same("last-b", "once-a");
    assert_false(has("last-a/base/sites"));
    assert_false(has("last-b/base/sites"));
}

/* Of each file below sites/ of a stage: a byte of its middle changes; `remove`: it goes. Returns how many there are. */
static i64 damage_rounds(const char *folder, bool remove)
{
    char **names, *below = string_format("%s/%s/base.partial/sites", root, folder);
    i64 count;
    assert_int_equal(directory_list(&names, &count, below), 0);
    for (i64 i = 0; i < count; i++) {
        struct buffer text = {0};
        char *path = path_join(below, names[i]);
        assert_int_equal(file_read(&text, path), 0);
        text.data[text.length / 2] ^= 1;
        if (remove)
            assert_int_equal(unlink(path), 0);
        else
            assert_int_equal(file_replace(path, text.data, text.length), 0);
        buffer_release(&text);
        memory_free(path);
    }
    string_list_free(names, count);
    memory_free(below);
    return count;
}

TEST(damaged_rounds_are_asked_for_again)
{
    struct site a = {"damaged-a", "a"}, b = {"damaged-b", "b"};
    a.meet = b.meet = ranks_free_port();
    start(&a);
    start(&b);
    await(&a, "metrics.jsonl", "\"step\":8,");
    assert_int_equal(stop(&a, SIGKILL), 128 + SIGKILL);
    assert_true(damage_rounds("damaged-a", false) > 3);
    start(&a);
    expect_ends(&a, 0, "is damaged, so it is removed and asked for again: the checksum differs");
    expect_ends(&b, 0, "base: done");
    expect_same("damaged-a", "plain-a");
}

/* One that listens, and one that does not. */
TEST(a_site_whose_rounds_are_lost_ends)
{
    static struct site sites[] = {{"lost-c", "c"}, {"lost-d", "d"}, {"lost-e", "e"}, {"lost-f", "f"}};
    for (i64 i = 0; i < 2; i++) {
        struct site *first = &sites[2 * i], *other = first + 1, *killed = first + i, *stays = first + 1 - i;
        first->meet = other->meet = ranks_free_port();
        start_listening(first);
        start(other);
        await(killed, "metrics.jsonl", "\"step\":8,");
        assert_int_equal(stop(killed, SIGKILL), 128 + SIGKILL);
        damage_rounds(first->folder, true);
        damage_rounds(other->folder, true);
        start(killed);
        expect_ends(killed, 1, "is neither in sites/ of this stage nor kept by site");
        assert_int_equal(stop(stays, SIGINT), 130);
    }
}

TEST(a_site_that_cannot_keep_rounds_ends)
{
    struct site a = {"full-a", "a"}, b = {"full-b", "b"};
    char *stage = path_join(root, "full-a/base.partial"), *below = path_join(stage, "sites");
    a.meet = b.meet = ranks_free_port();
    start(&a);
    start(&b);
    await(&a, "metrics.jsonl", "\"step\":2,");
    assert_int_equal(directory_remove(below), 0);
    assert_int_equal(file_replace(below, "", 0), 0);
    expect_ends(&a, 1, "cannot be kept, which a run that is resumed needs");
    start(&a);
    expect_ends(&a, 1, "merges must be kept if all sites are required");
    assert_int_equal(unlink(below), 0);
    start(&a);
    expect_ends(&a, 0, "base: done");
    expect_ends(&b, 0, "base: done");
    expect_same("full-a", "plain-a");
    memory_free(stage);
    memory_free(below);
}

/* With grace: a site that dies costs nothing, and what it brings later is merged. */
TEST(a_site_leaves_and_comes_back)
{
    static const char *const more[] = {"base.steps=100000", "base.sites.grace_s=0.2", NULL};
    struct site a = {"grace-a", "a"}, b = {"grace-b", "b"};
    memcpy(a.more, more, sizeof more);
    memcpy(b.more, more, sizeof more);
    a.meet = b.meet = ranks_free_port();
    start(&a);
    await(&a, "sites.jsonl", "\"merged\":[{\"site\":\"a\",\"weight\":1.0"); /* alone */
    start(&b);
    await(&a, "sites.jsonl", "{\"site\":\"b\",\"weight\":0.");
    await(&b, "sites.jsonl", "{\"site\":\"b\",\"weight\":0.");
    assert_int_equal(stop(&b, SIGKILL), 128 + SIGKILL);
    await(&a, "sites.jsonl", "\"left\":\"b\"");
    assert_int_equal(stop(&a, SIGINT), 130); /* and the one that listens */
    start(&b);
    await(&b, "sites.jsonl", "\"merged\":[{\"site\":\"b\",\"weight\":1.0");
    start(&a);
    await(&b, "sites.jsonl", "\"joined\":\"a\"");
    assert_int_equal(stop(&b, SIGINT), 130);
    assert_int_equal(stop(&a, SIGINT), 130);
    char *log = log_of("grace-b");
    if (!strstr(log, "took fragment"))
        fail_msg("a site that joins late takes no anchor: %s", log);
    memory_free(log);
}

/* The site that listens forgets what it has chosen, and how fast the link is. The other one remembers it. */
TEST(a_site_that_listens_takes_the_plan_of_the_others)
{
    static const char *const more[] = {"base.sites.steps=0", "base.sites.bits=auto", "base.checkpoint_steps=100", NULL};
    struct site a = {"plan-a", "a"}, b = {"plan-b", "b"};
    memcpy(a.more, more, sizeof more);
    memcpy(b.more, more, sizeof more);
    a.meet = b.meet = ranks_free_port();
    start_listening(&a);
    start(&b);
    await(&a, "metrics.jsonl", "\"step\":6,");
    assert_int_equal(stop(&a, SIGKILL), 128 + SIGKILL);
    start(&a);
    expect_ends(&a, 0, "base: done");
    expect_ends(&b, 0, "base: done");
    expect_same("plan-a", "plan-b");
}

/* With grace: who ends says so if it cannot know that all have the same weights. */
TEST(sites_with_grace_know_whether_they_end_with_the_same_weights)
{
    static const char *const more[] = {"base.sites.grace_s=0.3", NULL};
    struct site a = {"knows-a", "a", .more = {more[0]}}, b = {"knows-b", "b", .more = {more[0]}};
    struct site c = {"alone-c", "c", .meet = ranks_free_port(), .more = {more[0]}};
    a.meet = b.meet = ranks_free_port();
    start(&a);
    start(&b);
    start(&c);
    expect_ends(&a, 0, "base: done");
    expect_ends(&b, 0, "base: done");
    expect_ends(&c, 0, "ends without knowing whether the other sites have the same last merge");
    char *logs[] = {log_of("knows-a"), log_of("knows-b")};
    bool knows = true;
    for (i64 i = 0; i < 2; i++) {
        knows &= !strstr(logs[i], "ends without knowing") && !strstr(logs[i], "are merged with no other");
        memory_free(logs[i]);
    }
    if (knows)
        expect_same("knows-a", "knows-b");
}

/* A machine that was lost says nothing more, but its connection stands. Its site comes back on another machine. */
TEST(a_site_comes_back_in_the_place_of_a_lost_one)
{
    struct site a = {"there-a", "a"}, b = {"there-b", "b"}, again = {"again-b", "b"};
    a.meet = b.meet = again.meet = ranks_free_port();
    start_listening(&a);
    start(&b);
    await(&a, "metrics.jsonl", "\"step\":4,");
    assert_int_equal(kill(b.processes[0], SIGSTOP), 0);
    start(&again);
    expect_ends(&a, 0, "the link to site b ends: it does not answer, and has come again");
    expect_ends(&again, 0, "base: done");
    assert_int_equal(stop(&b, SIGKILL), 128 + SIGKILL);
    expect_same("there-a", "plain-a");
    expect_same("again-b", "plain-a");
}

static void expect_refused(const char *folder, const char *name, int meet, const char *more, const char *says)
{
    struct site c = {folder, name, .meet = meet, .more = {more, NULL}};
    start(&c);
    expect_ends(&c, 1, says);
}

TEST(sites_that_do_not_fit_are_refused_and_the_run_goes_on)
{
    struct site a = {"long-a", "a", .more = {"base.steps=100000", NULL}};
    struct site b = {"long-b", "b", .more = {"base.steps=100000", NULL}};
    char *key = string_format("base.sites.key=%s/other-key", root);
    a.meet = b.meet = ranks_free_port();
    start_listening(&a);
    start(&b);
    await(&a, "sites.jsonl", "\"joined\":\"b\"");
    static const char *const same[] = {"base.steps=100000", NULL};
    struct site c = {"same-name", "b", .meet = a.meet};
    memcpy(c.more, same, sizeof same);
    start(&c);
    expect_ends(&c, 1, "refuses this one: a site of the name b is here already");
    expect_refused("wrong-key", "c", a.meet, key, "it does not have the same key (sites.key)");
    expect_refused("recipe", "d", a.meet, "base.optimizer.lr=0.1", "its recipe differs in ");
    struct site e = {"seed", "e", .meet = a.meet};
    memcpy(e.more, (const char *const[]){"base.steps=100000", "seed=77", NULL}, 3 * sizeof(char *));
    start(&e);
    expect_ends(&e, 1, "it began with other weights (seed, from)");
    struct site f = {"third", "f", .meet = a.meet};
    memcpy(f.more, same, sizeof same);
    start(&f);
    expect_ends(&f, 1, "the 2 sites of this run are known (sites.least)");
    await(&a, "metrics.jsonl", "\"step\":30,");
    assert_int_equal(stop(&a, SIGINT), 130);
    assert_int_equal(stop(&b, SIGINT), 130);
    char *log = log_of("long-a");
    if (!strstr(log, "is refused: it does not have the same key") || !strstr(log, "site b at 127.0.0.1"))
        fail_msg("the site that listens says nothing of those it refuses: %s", log);
    memory_free(log);
    memory_free(key);
}

static void estimate(struct step_needs *needs, const char *sites, i64 data)
{
    struct pretrain_settings s = {0};
    char *text = string_format("{data: %s, batch: {rows: 4, length: 64, micro_rows: 1}, elastic: {on: false}, model: "
                               "{width: 32, layers: 2, experts: 4, expert_width: 16, vit_layers: 1}%s}",
                               shards, sites);
    struct yaml *recipe = yaml_parse(text, (i64)strlen(text), "settings");
    assert_non_null(recipe);
    assert_int_equal(settings_read(&s, pretrain_table, yaml_root(recipe), NULL, NULL, 0), 0);
    struct model_config config = pretrain_config(&s);
    model_config_set_tokens(&config, &(struct token_sizes){.vocabulary = 256});
    struct step_work work = {.settings = &s, .config = &config, .layout = {.data = data}, .ranks = data};
    *needs = (struct step_needs){0};
    assert_int_equal(step_estimate(needs, &work, 0), 0);
    settings_release(&s, pretrain_table);
    yaml_free(recipe);
    memory_free(text);
}

TEST(plans_count_the_memory_of_a_site)
{
    enum { BIASES = 2 * 4 }; /* of the router: no parameters */
    struct step_needs alone, site, ranks;
    estimate(&alone, "", 1);
    estimate(&site, ", sites: {meet: 'here:1', name: a}", 1);
    estimate(&ranks, ", sites: {meet: 'here:1', name: a}", 2);
    assert_int_equal(alone.memory.sites, 0);
    assert_int_equal(site.memory.sites, 8 * (site.parameters + BIASES));
    assert_true(step_memory_total(&site.memory) >= step_memory_total(&alone.memory) + site.memory.sites);
    assert_true(fabs((double)ranks.memory.sites / (double)site.memory.sites - 0.5) < 0.1);
}

/* Bad settings end before any stage. */
TEST(settings_of_a_site_are_checked)
{
    char *open = path_join(root, "open-key");
    static char key[256];
    assert_int_equal(file_replace(open, "0123456789012345678901234567890123456789", 40), 0);
    assert_int_equal(chmod(open, 0644), 0);
    snprintf(key, sizeof key, "base.sites.key=%s", open);
    const struct {
        const char *folder, *name, *more, *says;
    } cases[] = {{"bad-name", "my site", NULL, "sites.name is \"my site\": expected 1 to 39 letters"},
                 {"nested", "a", "base.elastic.nested=true", "elastic.nested with sites"},
                 {"best", "a", "base.keep_best=heldout", "keep_best with sites"},
                 {"delay", "a", "base.sites.delay=4", "sites.delay is 4: expected less than sites.steps, which is 4"},
                 {"no-key", "a", "base.sites.key=", "sites.key is missing"},
                 {"lost-key", "a", "base.sites.key=/no/such/key", "sites.key: /no/such/key: No such file"},
                 {"open-key", "a", key, "others can read or change"}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct site s = {cases[i].folder, cases[i].name, .meet = 1, .more = {cases[i].more, NULL}};
        start(&s);
        int status = end(&s);
        char *log = log_of(cases[i].folder);
        if (status == 0 || !strstr(log, cases[i].says))
            fail_msg("%s: status %d, expected \"%s\" in: %s", cases[i].folder, status, cases[i].says, log);
        memory_free(log);
    }
    memory_free(open);
}

static int make(void **state)
{
    static const char key[] = "0123456789abcdef0123456789abcdef", other[] = "another key of 32 bytes or more...";
    (void)state;
    setenv("WEFT_WAIT_S", "60", 1);
    setenv("WEFT_THREADS", "1", 1);
    workers_start(1);
    shards = fixture_shards("sites", 80, 40);
    root = string_format("%s-out", shards);
    assert_int_equal(directory_make(root), 0);
    fixture_validation(shards);
    char *path = path_join(root, "recipe.yaml"), *names[] = {path_join(root, "key"), path_join(root, "other-key")};
    char *text = string_format(
        "run: %s/whole\nprecision: f32\nstages:\n  base: {kind: pretrain, data: %s, steps: %d, heldout_rows: 0, "
        "checkpoint_steps: 5, batch: {rows: 4, length: 128, micro_rows: 2}, elastic: {on: false}, model: {width: 32, "
        "layers: 4, heads: 2, kv_heads: 2, head_width: 16, experts: 4, expert_width: 16, vit_layers: 1, vit_width: 16, "
        "vit_heads: 2}, optimizer: {warmup: 1}, sites: {meet: \"\", name: a, key: %s, steps: 4, delay: 2, bits: 4}}\n",
        root, shards, STEPS, names[0]);
    assert_int_equal(file_replace(path, text, (i64)strlen(text)), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(file_replace(names[i], i ? other : key, 32), 0);
        assert_int_equal(chmod(names[i], 0600), 0);
        memory_free(names[i]);
    }
    memory_free(path);
    memory_free(text);
    return 0;
}

static int clear(void **state)
{
    (void)state;
    directory_remove(root);
    directory_remove(shards);
    memory_free(root);
    memory_free(shards);
    return 0;
}

int main(void)
{
    return tests_run(make, clear);
}
