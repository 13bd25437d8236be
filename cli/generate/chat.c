/* weft chat MODEL: a dialogue with a model in its own chat template. */
#include "cli/generate/generation.h"
#include "cli/generate/line_editor.h"
#include "core/json.h"
#include "generate/conversation.h"
#include "kernels/device/dry_run.h"
#include "train/taught.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

struct dialogue {
    struct conversation conversation;
    struct generation generation;
    const char *system; /* text of the system message; NULL: none */
    i64 most;
    u32 answers;               /* number of answers so far, for random draws */
    bool terminal;             /* stdin and stdout are one: prompts, and errors do not end it */
    struct line_editor *lines; /* NULL: plain lines */
    struct buffer input;       /* plain lines: what was read from stdin; the next line begins at `at` */
    i64 at;
    i64 line_number;
    bool leaves, unread; /* unread: nobody reads stdout */
    int output_errno;    /* of a write to stdout that failed */
};
#define CHAT_PROMPT "> "

/* ---- Commands ---- */

static int start_over(struct dialogue *c)
{
    conversation_reset(&c->conversation);
    return c->system ? conversation_say(&c->conversation, "system", c->system, (i64)strlen(c->system)) : 0;
}

static int attach_file(struct dialogue *c, const char *name, const char *file)
{
    enum modality kind = modality_named(name);
    if (conversation_attach(&c->conversation, kind, file))
        return -1;
    if (c->terminal)
        log_info("%s: goes with the next message", file);
    return 0;
}

/* One line of JSON, which is a file of a document and a file of lines likewise. */
static int save(struct dialogue *c, const char *name, const char *file)
{
    struct buffer text = {0};
    struct stat there;
    bool replaces = strcmp(name, "save!") == 0;
    bool taken = stat(file, &there) == 0 ? S_ISREG(there.st_mode) : lstat(file, &there) == 0; /* not a pipe */
    if (conversation_messages(&c->conversation) == (c->system != NULL))
        return error_set("/%s %s: nothing was said yet", name, file);
    if (taken && !replaces)
        return error_set("%s exists: choose another name, or replace it by /save! %s", file, file);
    struct json *all = conversation_json(&c->conversation);
    json_print(&text, all, 0);
    buffer_append(&text, "\n", 1);
    int status = file_replace(file, text.data, text.length);
    if (status == 0)
        log_info("wrote %s, %lld %s", file, (long long)conversation_messages(&c->conversation),
                 plural(conversation_messages(&c->conversation), "message", "messages"));
    buffer_release(&text);
    json_free(all);
    return status;
}

static int reset(struct dialogue *c, const char *name, const char *file)
{
    (void)name;
    (void)file;
    return start_over(c);
}

static int leave(struct dialogue *c, const char *name, const char *file)
{
    (void)name;
    (void)file;
    c->leaves = true;
    return 0;
}

static int show_help(struct dialogue *c, const char *name, const char *file);

static const struct chat_command {
    const char *name, *argument, *help; /* argument NULL: it takes none */
    int (*run)(struct dialogue *chat, const char *name, const char *file);
} chat_commands[] = {
    {"image", "FILE", "show a picture with the next message", attach_file},
    {"audio", "FILE", "play a sound with the next message", attach_file},
    {"video", "FILE", "show a clip with the next message", attach_file},
    {"save", "FILE", "write the conversation as a line of JSON, which sft reads, into a new FILE", save},
    {"save!", "FILE", "the same; an existing FILE is replaced", save},
    {"reset", NULL, "forget the conversation", reset},
    {"help", NULL, "list these commands", show_help},
    {"quit", NULL, "leave, as Ctrl-D does", leave},
    {"exit", NULL, "the same", leave},
};

static int show_help(struct dialogue *c, const char *name, const char *file)
{
    (void)c;
    (void)name;
    (void)file;
    fprintf(stderr, "A line is a message to the model, which answers with text. Ctrl-C stops an answer,\n"
                    "or discards the line at the prompt.\n");
    for (i64 i = 0; i < COUNT_OF(chat_commands); i++)
        fprintf(stderr, "  /%-6s %-5s %s\n", chat_commands[i].name,
                chat_commands[i].argument ? chat_commands[i].argument : "", chat_commands[i].help);
    fprintf(stderr, "  //            a message that begins with one slash\n");
    return 0;
}

static int unknown_command(const char *line, i64 length)
{
    const char *names[COUNT_OF(chat_commands) + 1] = {NULL};
    char *word = string_format("%.*s", (int)min_i64(length, 40), line);
    for (i64 i = 0; i < COUNT_OF(chat_commands); i++)
        names[i] = chat_commands[i].name;
    const char *near = string_nearest(word, names);
    error_set("/%s: there is no such command%s%s%s; /help lists them, and // begins a message with a slash", word,
              near ? ", did you mean /" : "", near ? near : "", near ? "?" : "");
    memory_free(word);
    return -1;
}

/* line: behind the slash, without spaces at its end. */
static int run_command(struct dialogue *c, const char *line)
{
    i64 length = (i64)strcspn(line, " \t");
    const char *rest = line + length + strspn(line + length, " \t");
    for (i64 i = 0; i < COUNT_OF(chat_commands); i++) {
        const struct chat_command *command = &chat_commands[i];
        if ((i64)strlen(command->name) != length || memcmp(command->name, line, (size_t)length) != 0)
            continue;
        if (command->argument && !*rest)
            return error_set("/%s needs a %s", command->name, command->argument);
        if (!command->argument && *rest)
            return error_set("/%s takes no argument", command->name);
        return command->run(c, command->name, rest);
    }
    return unknown_command(line, length);
}

/* ---- Messages ---- */

/* Writes to stdout at once. stdio would lose text when Ctrl-C interrupts a write. */
static void show_text(void *context, const char *text, i64 length)
{
    struct dialogue *c = context;
    struct buffer shown = {0};
    if (isatty(STDOUT_FILENO))
        text_escape(&shown, text, length, "\n\t");
    else
        buffer_append(&shown, text, length);
    for (i64 at = 0; at < shown.length && !c->output_errno;) {
        ssize_t count = write(STDOUT_FILENO, shown.data + at, (size_t)(shown.length - at));
        if (count > 0)
            at += count;
        else if (count < 0 && errno != EINTR)
            c->output_errno = errno;
    }
    buffer_release(&shown);
}

/* Sends a message and shows the answer. After an error the message is taken back; after Ctrl-C on a
 * terminal the dialogue goes on with what was said. */
static int send(struct dialogue *c, const char *text, i64 length)
{
    const struct conversation_show show = {show_text, c};
    const struct conversation_options options = {.decoding = c->generation.options, .most = c->most, .show = &show};
    struct conversation *v = &c->conversation;
    bool full = false;
    if (conversation_say(v, "user", text, length))
        return -1;
    i64 before = conversation_messages(v);
    int status = conversation_fit(v, c->most);
    if (status == 0) {
        status = conversation_answer(v, 1, c->answers++, &full, &options);
        show_text(c, "\n", 1);
    }
    bool said = conversation_messages(v) > before, stopped = status && interrupted();
    if (status && !said)
        conversation_take_back(v);
    if (stopped && c->terminal && interrupted_forget()) {
        log_info("stopped%s", said ? "" : " before the answer began: the message is taken back");
        status = 0;
    }
    if (full && c->terminal)
        log_info("the answer ends at %lld %s; --max-tokens N allows more", (long long)c->most,
                 plural(c->most, "id", "ids"));
    if (c->output_errno && output_is_unread())
        c->leaves = c->unread = true;
    else if (c->output_errno) {
        errno = c->output_errno;
        return error_errno("stdout: the answer cannot be written");
    }
    return status;
}

static int take_line(struct dialogue *c, const struct buffer *line)
{
    const char *text = line->data ? line->data : "";
    i64 length = line->length;
    while (length > 0 && strchr(" \t\r", text[length - 1]) && text[length - 1])
        length--;
    if (length == 0)
        return error_set("an empty line is no message");
    if (text[0] != '/' || (length > 1 && text[1] == '/'))
        return send(c, text + (text[0] == '/'), length - (text[0] == '/'));
    char *command = string_format("%.*s", (int)length - 1, text + 1);
    int status = run_command(c, command);
    memory_free(command);
    return status;
}

/* ---- Lines ---- */

/* Waits for input, on a terminal behind a prompt. If a terminal is interrupted, `typed` grows by
 * what it holds of a line. */
static bool wait_for_input(struct buffer *typed, struct dialogue *c, const char *prompt)
{
    struct termios before, during;
    char block[4096];
    if (!c->terminal || tcgetattr(STDIN_FILENO, &before))
        return interrupted_wait(STDIN_FILENO);
    during = before;
    during.c_lflag |= NOFLSH; /* Ctrl-C does not discard the line yet */
    tcsetattr(STDIN_FILENO, TCSANOW, &during);
    show_text(c, prompt, (i64)strlen(prompt));
    bool ready = interrupted_wait(STDIN_FILENO);
    if (!ready) {
        during.c_lflag &= ~(tcflag_t)ICANON; /* the line is read without its end */
        during.c_cc[VMIN] = during.c_cc[VTIME] = 0;
        tcsetattr(STDIN_FILENO, TCSANOW, &during);
        ssize_t count = read(STDIN_FILENO, block, sizeof block);
        buffer_append(typed, block, max_i64(count, 0));
    }
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
    return ready;
}

/* The next line of stdin, without an editor. 1: a line; 0: the end; -1: an error, or interrupted,
 * and `out` is what was typed of the line. */
static int read_plain(struct buffer *out, struct dialogue *c)
{
    struct buffer *in = &c->input;
    const char *end, *prompt = CHAT_PROMPT;
    buffer_clear(out);
    while (!(end = in->length > c->at ? memchr(in->data + c->at, '\n', (size_t)(in->length - c->at)) : NULL)) {
        char block[4096];
        if (!wait_for_input(in, c, prompt)) {
            buffer_append(out, in->data + c->at, in->length - c->at);
            in->length = c->at = 0;
            return -1;
        }
        prompt = "";
        ssize_t count = read(STDIN_FILENO, block, sizeof block);
        if (count < 0 && errno != EINTR)
            return error_errno("stdin: cannot be read");
        if (count == 0 && in->length == c->at)
            return 0;
        if (count == 0)
            buffer_append(in, "\n", 1); /* the last line lacks it */
        if (count > 0)
            buffer_append(in, block, count);
    }
    i64 length = end - (in->data + c->at);
    buffer_append(out, in->data + c->at, length);
    c->at += length + 1;
    if (c->at == in->length)
        in->length = c->at = 0;
    return 1;
}

/* 1: a line; 0: the end; -1 and a message. Ctrl-C on a terminal discards what was typed of the line.
 * If that was nothing, a hint follows, and another Ctrl-C on nothing ends the dialogue. */
static int read_line(struct buffer *out, struct dialogue *c)
{
    bool hinted = false;
    for (;;) {
        int got = c->lines ? line_editor_next(out, c->lines) : read_plain(out, c);
        bool ends = hinted && out->length == 0;
        if (got >= 0 || !interrupted() || !c->terminal || ends || !interrupted_forget())
            return got < 0 && interrupted() ? error_interrupted() : got;
        show_text(c, c->lines ? "^C\n" : "\n", c->lines ? 3 : 1);
        hinted = out->length == 0;
        if (hinted)
            log_info("Ctrl-D or /quit ends");
    }
}

/* On a terminal an error is said and the dialogue goes on. Elsewhere it ends the dialogue, since the
 * following lines may depend on the one that failed; but an empty line is only left out. */
static int answer_lines(struct dialogue *c)
{
    struct buffer line = {0};
    int got = 0, status = 0;
    while (!c->leaves && status == 0 && (got = read_line(&line, c)) == 1) {
        c->line_number++;
        status = take_line(c, &line);
        bool empty = line.length == (i64)strspn(line.data ? line.data : "", " \t\r");
        if (status && !c->output_errno && (c->terminal || empty) &&
            (!interrupted() || (c->terminal && interrupted_forget()))) {
            if (!c->terminal)
                error_prefix("line %lld", (long long)c->line_number);
            log_warn("%s", error_text());
            status = 0;
        }
    }
    if (status && !interrupted())
        error_prefix("line %lld", (long long)c->line_number);
    if (c->terminal && (got == 0 || status || got < 0))
        show_text(c, "\n", 1);
    buffer_release(&line);
    return status || got < 0 ? -1 : 0;
}

/* ---- The command ---- */

/* What the options say of a dialogue. */
struct chat_words {
    const char *system, *variables; /* NULL: none */
};

static int set_variables(struct dialogue *c, const char *text)
{
    struct json *variables = text ? json_parse(text, (i64)strlen(text), "--variables") : NULL;
    int status = !text || json_kind(variables) == JSON_OBJECT ? 0 : -1;
    if (status && variables)
        error_usage("--variables: expected an object, such as {\"enable_thinking\": false}");
    conversation_set_variables(&c->conversation, status ? NULL : variables);
    json_free(variables);
    return status;
}

static int open_chat(struct dialogue *c, struct generator *s, const struct generation_settings *r,
                     const struct chat_words *words)
{
    *c = (struct dialogue){.system = words->system, .most = r->most ? r->most : CONVERSATION_IDS};
    if (generation_open(&c->generation, s, r) || conversation_open(&c->conversation, s) ||
        set_variables(c, words->variables))
        return -1;
    return start_over(c);
}

static void close_chat(struct dialogue *c)
{
    line_editor_close(c->lines);
    buffer_release(&c->input);
    conversation_close(&c->conversation);
    generation_close(&c->generation);
}

struct chat_work {
    struct chat_words words;
    struct generation_settings arguments;
    i64 given_ids; /* of an answer, at the most */
};

static int run_dry(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct chat_work *w = context;
    struct generator generator;
    struct dialogue c;
    (void)out;
    if (generator_open(&generator, meta, &w->arguments.source))
        return -1;
    int status = open_chat(&c, &generator, &w->arguments, &w->words);
    const struct conversation_options options = {.decoding = c.generation.options, .most = c.most};
    if (status == 0)
        status = conversation_say(&c.conversation, "user", "?", 1) || conversation_fit(&c.conversation, c.most) ||
                         conversation_answer(&c.conversation, 1, 0, NULL, &options)
                     ? -1
                     : 0;
    close_chat(&c);
    generator_close(&generator);
    return status;
}

static bool smaller(struct buffer *name, struct dry_run *d)
{
    struct generation_settings *r = &((struct chat_work *)d->context)->arguments;
    i64 given = ((struct chat_work *)d->context)->given_ids;
    r->most = (r->most ? r->most : given) / 2;
    if (r->most == 0)
        return model_source_smaller(name, &r->source);
    buffer_printf(name, "--max-tokens %lld", (long long)r->most);
    model_source_name(name, &r->source);
    return true;
}

/* Appends the texts of a list as "a", "b". */
static void put_quoted(struct buffer *out, const struct json *texts)
{
    for (i64 i = 0; i < json_count(texts); i++) {
        const struct json *text = json_at(texts, i);
        buffer_printf(out, "%s\"", i ? ", " : "");
        text_escape(out, json_string(text, ""), json_string_length(text), "");
        buffer_append(out, "\"", 1);
    }
}

/* Says what the model was taught, so that a first message can be like it. */
static void log_taught(const char *directory)
{
    char *path = path_join(directory, TAUGHT_FILE);
    struct json *taught = file_exists(path) ? json_load(path) : json_object();
    const struct json *prompts = json_get(taught, "prompts"), *media = json_get(taught, "media");
    struct buffer line = {0};
    if (!taught)
        log_warn("%s; what the model was taught is unknown", error_text());
    put_quoted(&line, prompts);
    for (i64 i = 0; i < json_count(media); i++)
        buffer_printf(&line, "%s/%s FILE", i || line.length ? ", " : "", json_string(json_at(media, i), ""));
    if (line.length)
        log_info("taught:  %s", line.data);
    buffer_release(&line);
    json_free(taught);
    memory_free(path);
}

/* ended: exit status of the process where nobody reads its answers. */
static int run(int *ended, const struct generation_settings *r, const struct chat_words *words)
{
    struct generator generator;
    struct dialogue c;
    const char *directory = r->source.directory;
    struct chat_work w = {*words, *r, r->most ? r->most : CONVERSATION_IDS};
    const struct dry_run check = {directory, run_dry, &w, .smaller = smaller, .otherwise = SMALLER_MODEL};
    if (dry_run_check(&check, cli_device()) || generator_open(&generator, cli_device(), &r->source))
        return -1;
    int status = open_chat(&c, &generator, r, words);
    c.terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    if (c.terminal)
        signals_say("%s", ""); /* Ctrl-C ends an answer, not the chat */
    if (status == 0 && c.terminal) {
        log_info("%s: /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves", directory);
        c.lines = line_editor_open(CHAT_PROMPT);
    }
    if (status == 0 && !conversation_is_trained(&generator))
        log_info("%s: the model seems never to have been fine-tuned on chats (a stage sft does that), so it may "
                 "continue the text instead of answering",
                 directory);
    if (status == 0)
        log_taught(directory);
    if (status == 0)
        status = answer_lines(&c);
    *ended = c.unread ? 128 + SIGPIPE : 0;
    close_chat(&c);
    generator_close(&generator);
    return *ended ? 0 : status;
}

struct chat_call {
    struct generation_settings settings;
    struct chat_words words;
    int status; /* of the process */
};
static const struct setting chat_table[] = {
    GENERATION_ROWS(struct chat_call, settings, "0.7", "maximum ids of an answer, which is text; 0: 256"), {0}};

static int run_call(void *context, const char *argument)
{
    struct chat_call *c = context;
    (void)argument;
    if (generation_take(&c->settings, "chat", 0.7))
        return -1;
    return run(&c->status, &c->settings, &c->words);
}

int command_chat(int argc, char **argv)
{
    struct chat_call r = {0};
    const struct option own[] = {
        {"system", "TEXT", &r.words.system, NULL, "system message before the conversation"},
        {"variables", "JSON", &r.words.variables, NULL,
         "variables of the chat template, such as {\"enable_thinking\": false} or {\"tools\": [..]}"},
        GREEDY_OPTION(r.settings),
        DEVICE_OPTION,
        {NULL}};
    const struct settings_command c = {chat_table, own, &r, &r.settings.sub, NULL, run_call, &r, .own_first = true};
    int status = settings_command_run(argc, argv, &c);
    return r.status ? r.status : status;
}
