/* What became of the stages of a run: by timings.jsonl, which says when a stage was begun and how it
 * ended, and by the process and the lock of those that did not end. */
#include "core/processes.h"
#include "report/page.h"

#include <dirent.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- What is known ---- */

/* The latest time at which the stage's folder or a file in it changed. */
static double changed_at(const char *folder)
{
    struct stat status;
    double last = stat(folder, &status) == 0 ? (double)status.st_mtime : NAN;
    DIR *list = opendir(folder);
    for (struct dirent *e; list && (e = readdir(list));)
        if (fstatat(dirfd(list), e->d_name, &status, 0) == 0 && strcmp(e->d_name, "..") != 0)
            last = fmax(last, (double)status.st_mtime);
    if (list)
        closedir(list);
    return last;
}

/* Of a stage that has not said how it ended. begun: the line of the process that began it; NULL: none. */
static enum stage_state state_of_begun(const struct run_stage *s, const struct json *begun)
{
    char host[256] = "";
    i64 process = json_integer(json_get(begun, "process"), 0);
    i64 began = json_integer(json_get(begun, "process_began"), 0);
    if (!begun)
        return STAGE_UNFINISHED;
    gethostname(host, sizeof host - 1);
    if (strcmp(s->host, host) != 0)
        return STAGE_ELSEWHERE;
    return began > 0 && process_began((pid_t)process) == began ? STAGE_RUNNING : STAGE_STOPPED;
}

static enum stage_state state_of_ended(const struct json *ended)
{
    const char *how = json_string(json_get(ended, "ended"), ""); /* older programs did not say */
    return strcmp(how, "failed") == 0        ? STAGE_FAILED
           : strcmp(how, "interrupted") == 0 ? STAGE_INTERRUPTED
                                             : STAGE_UNFINISHED;
}

void stage_find_state(struct run_stage *s, const struct json_lines *timings)
{
    const struct json *last = NULL;
    double step_at = number_at(s->metrics.count ? s->metrics.list[s->metrics.count - 1] : NULL, "time");
    for (i64 i = 0; i < timings->count; i++) {
        const struct json *line = timings->list[i];
        if (strcmp(json_string(json_get(line, "stage"), ""), s->name) == 0) {
            last = line;
            s->begun_at = json_get(line, "begun") ? number_at(line, "time") : s->begun_at;
        }
    }
    bool ended = last && !json_get(last, "begun");
    s->error = string_copy(json_string(json_get(last, "error"), ""));
    s->host = string_copy(json_string(json_get(last, "host"), ""));
    s->ended_at = ended ? number_at(last, "time") : NAN;
    s->seen_at = fmax(isfinite(step_at) ? step_at : changed_at(s->folder), s->begun_at);
    s->state = s->finished              ? STAGE_FINISHED
               : lock_holder(s->folder) ? STAGE_RUNNING
               : ended                  ? state_of_ended(last)
                                        : state_of_begun(s, last);
}

/* ---- In words ---- */

const char *const stage_states[] = {"finished", "not finished", "running",         "on another machine",
                                    "failed",   "interrupted",  "stopped half-way"};

static void put_time(struct buffer *out, double seconds)
{
    char text[64];
    struct tm parts;
    time_t whole = (time_t)seconds;
    if (localtime_r(&whole, &parts) && strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %Z", &parts))
        buffer_printf(out, "%s", text);
}

/* ", at step 40 of 200", of stages that train. */
static void put_step(struct buffer *out, const struct run_stage *s)
{
    const struct json *settings = json_get(s->identity, "settings");
    double step = number_at(s->metrics.count ? s->metrics.list[s->metrics.count - 1] : NULL, "step");
    double steps = number_at(settings, "steps") + json_number(json_get(settings, "clip_steps"), 0);
    if (isfinite(step))
        buffer_printf(out, ", at step %.0f", step);
    if (isfinite(step) && steps >= step)
        buffer_printf(out, " of %.0f", steps);
}

/* "WORDS TIME"; nothing if the time is unknown. */
static void put_at(struct buffer *out, const char *words, double seconds)
{
    if (!isfinite(seconds))
        return;
    buffer_printf(out, "%s", words);
    put_time(out, seconds);
}

void put_stage_state(struct buffer *out, const struct run_stage *s)
{
    static const char *const verbs[] = {
        "is finished",     "is not finished",         "is running", "was begun", "failed",
        "was interrupted", "stopped without an error"};
    bool lives = s->state == STAGE_RUNNING || s->state == STAGE_ELSEWHERE;
    buffer_printf(out, "%s %s", s->name, verbs[s->state]);
    put_step(out, s);
    if (s->state == STAGE_ELSEWHERE)
        buffer_printf(out, " on %s, where alone it can be seen whether it goes on", s->host);
    put_at(out, lives ? ", since " : ", ", lives ? s->begun_at : s->ended_at);
    if (s->state == STAGE_FAILED)
        buffer_printf(out, ": %s", s->error);
    if (s->state == STAGE_INTERRUPTED)
        buffer_printf(out, ". The same command goes on from there");
    if (s->state == STAGE_STOPPED)
        buffer_printf(out, ": it was killed, or its machine went down. The same command goes on from its last "
                           "checkpoint");
    if (lives || s->state == STAGE_STOPPED)
        put_at(out, ". Last sign of life: ", s->seen_at);
    if (lives)
        put_at(out, ". This page was written: ", (double)time(NULL));
}

double run_finished_at(const struct run *run)
{
    double last = NAN;
    for (i64 i = 0; i < run->count; i++) {
        if (!run->stages[i].finished)
            return NAN;
        last = fmax(last, run->stages[i].ended_at);
    }
    return last;
}

void put_states(struct page *p, const struct run *run)
{
    for (i64 i = 0; i < run->count; i++) {
        struct buffer words = {0};
        enum stage_state state = run->stages[i].state;
        if (state == STAGE_FINISHED)
            continue;
        if (p->run_count > 1)
            buffer_printf(&words, "%s: ", run->name);
        put_stage_state(&words, &run->stages[i]);
        html_element(&p->html, "p", state == STAGE_RUNNING ? "state on" : "state", "%s.", words.data);
        buffer_release(&words);
    }
    struct buffer words = {0};
    put_at(&words, "Finished: ", run_finished_at(run));
    if (words.length && p->run_count == 1)
        html_element(&p->html, "p", "soft", "%s.", words.data);
    buffer_release(&words);
}
