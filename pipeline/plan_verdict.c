/* The end of `weft plan`: whether what the stages need is there. */
#include "pipeline/plan_media.h"
#include "core/json.h"
#include "kernels/cuda/device.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

void plan_need(struct plan_total *total, const struct plan_place *place, i64 memory_bytes, double disk_bytes)
{
    total->planned++;
    total->disk += (double)place->runs * disk_bytes;
    total->disk_to_come += recipe_stage_is_done(place->stage) ? 0 : (double)place->runs * disk_bytes;
    if (memory_bytes > total->memory) {
        total->memory = memory_bytes;
        snprintf(total->largest, sizeof total->largest, "%s", place->label);
    }
}

/* Memory of a GPU of this machine; 0: it has none. */
static i64 gpu_bytes(void)
{
    struct device gpu;
    if (cuda_count() == 0 || device_open_cuda(&gpu, 0))
        return 0;
    i64 bytes = device_left_bytes(&gpu);
    device_close(&gpu);
    return bytes == INT64_MAX ? 0 : bytes;
}

/* What this machine lets all its processes, or a limit this one, have. */
static i64 machine_bytes(const char **limit)
{
    struct memory_room room = memory_room();
    i64 all = (i64)sysconf(_SC_PHYS_PAGES) * (i64)sysconf(_SC_PAGESIZE);
    *limit = room.bytes < all ? room.limit : NULL;
    return min_i64(room.bytes, all);
}

struct verdict {
    const struct plan_total *total;
    const struct plan_machine *machine;
    i64 there;         /* bytes of a GPU, or of a machine whose ranks share them; 0: not known */
    const char *limit; /* that allows less than the machine has, or NULL */
    i64 together;      /* ranks that fit at a time */
    double disk_there; /* NAN: not known */
};

static void judge(struct verdict *v, const struct plan_total *total, const struct plan_machine *machine,
                  const char *folder)
{
    *v = (struct verdict){.total = total, .machine = machine};
    v->there = machine->memory_bytes ? machine->memory_bytes : machine->gpu ? gpu_bytes() : machine_bytes(&v->limit);
    v->together = total->memory ? v->there / total->memory : machine->ranks;
    v->disk_there = disk_left(folder);
}

static bool memory_fits(const struct verdict *v)
{
    return v->total->memory == 0 || v->together >= (v->machine->together ? v->machine->ranks : 1);
}

static bool disk_fits(const struct verdict *v)
{
    return !(v->total->disk_to_come > v->disk_there); /* NAN: it may */
}

static const char *word_of(bool fits)
{
    return fits ? "fits" : "does not fit";
}

static void put_memory(struct buffer *out, const struct verdict *v)
{
    const struct plan_machine *m = v->machine;
    const char *holder = m->gpu ? "GPU" : "machine";
    if (v->total->memory == 0)
        return;
    buffer_printf(out, "  memory   %10.3f GB%s, most of all for %s; ", (double)v->total->memory * 1e-9,
                  m->ranks > 1 ? " a rank" : "", v->total->largest);
    if (v->there == 0) {
        buffer_printf(out, "there is no GPU here: --memory GB says what one has\n");
        return;
    }
    if (v->limit)
        buffer_printf(out, "%s allows %.3f GB", v->limit, (double)v->there * 1e-9);
    else
        buffer_printf(out, "%s %s has %.3f GB", m->memory_bytes ? "a" : "this", holder, (double)v->there * 1e-9);
    buffer_printf(out, ": %s", word_of(memory_fits(v)));
    if (!m->gpu && m->ranks > 1 && v->together > 0 && v->together < m->ranks)
        buffer_printf(out, ", with %lld of the %lld %s on a machine at most", (long long)v->together,
                      (long long)m->ranks, plural(m->ranks, "rank", "ranks"));
    else if (!m->gpu && m->ranks > 1 && v->together > 0)
        buffer_printf(out, ", with all of the ranks on one machine too");
    buffer_printf(out, "\n");
}

static void put_disk(struct buffer *out, const struct verdict *v, const char *folder)
{
    char *name = text_escaped(folder);
    buffer_printf(out, "  disk     %10.3f GB to be written; ", v->total->disk_to_come * 1e-9);
    if (isnan(v->disk_there))
        buffer_printf(out, "what is free where %s will be is not known\n", name);
    else
        buffer_printf(out, "%.3f GB are free where %s will be: %s\n", v->disk_there * 1e-9, name,
                      word_of(disk_fits(v)));
    memory_free(name);
}

static void put_json(struct buffer *out, const struct verdict *v)
{
    struct json *line = json_object(), *j = json_object();
    if (v->there || !memory_fits(v))
        json_set(j, "fits", json_of_bool((v->there == 0 || memory_fits(v)) && disk_fits(v)));
    json_set(j, "memory", json_of_integer(v->total->memory));
    if (v->there)
        json_set(j, "memory_there", json_of_integer(v->there));
    json_set(j, "ranks", json_of_integer(v->machine->ranks));
    json_set(j, "disk", json_of_number(v->total->disk_to_come));
    if (!isnan(v->disk_there))
        json_set(j, "disk_there", json_of_number(v->disk_there));
    json_set(j, "unknown", json_of_integer(v->total->unknown));
    json_set(line, "verdict", j);
    plan_put_line(out, line);
    json_free(line);
}

void plan_verdict(const struct plan_total *total, const struct plan_machine *machine, const char *folder)
{
    struct buffer *out = total->out;
    struct verdict v;
    judge(&v, total, machine, folder);
    if (total->json) {
        put_json(out, &v);
        return;
    }
    bool known = v.there > 0 || total->memory == 0, fits = memory_fits(&v) && disk_fits(&v);
    buffer_printf(out, "all that is planned\n");
    put_memory(out, &v);
    put_disk(out, &v, folder);
    buffer_printf(out, "verdict: %s",
                  known || !disk_fits(&v) ? word_of(fits) : "not known without the memory of a GPU");
    if (total->unknown)
        buffer_printf(out, ", without %lld %s that cannot be made yet", (long long)total->unknown,
                      plural(total->unknown, "plan", "plans"));
    buffer_printf(out, "\n");
}
