#include "sites/rounds.h"

#include <string.h>

void rounds_release(struct rounds *r)
{
    for (i64 f = 0; f < r->fragments; f++)
        rounds_done(r, f);
}

i64 rounds_join(struct rounds *r, const char *name, const i64 *versions)
{
    i64 site = 0;
    while (site < r->site_count && strcmp(r->sites[site].name, name) != 0)
        site++;
    if (site < r->site_count && r->sites[site].here)
        return error_set("a site of the name %s is here already", name);
    if (site == SITES_MOST)
        return error_set("%d sites have come, more are not possible", SITES_MOST);
    struct rounds_site *s = &r->sites[site];
    *s = (struct rounds_site){.here = true};
    strcpy(s->name, name);
    memcpy(s->version, versions, (size_t)r->fragments * 8);
    r->site_count = max_i64(r->site_count, site + 1);
    return site;
}

void rounds_leave(struct rounds *r, i64 site)
{
    r->sites[site].here = false;
}

i64 rounds_here(const struct rounds *r)
{
    i64 here = 0;
    for (i64 i = 0; i < r->site_count; i++)
        here += r->sites[i].here;
    return here;
}

bool rounds_knows(const struct rounds *r, const char *name)
{
    bool found = false;
    for (i64 i = 0; i < r->site_count; i++)
        found |= strcmp(r->sites[i].name, name) == 0;
    return found;
}

bool rounds_has_part(const struct rounds *r, i64 fragment, const char *name)
{
    const struct rounds_of_fragment *o = &r->of[fragment];
    bool found = false;
    for (i64 i = 0; i < o->part_count; i++)
        found |= strcmp(o->parts[i].data + offsetof(struct part_head, name), name) == 0;
    return found;
}

enum rounds_verdict rounds_add(struct rounds *r, i64 site, i64 fragment, i64 round, const void *part, i64 bytes,
                               double now_s)
{
    struct rounds_of_fragment *o = &r->of[fragment];
    const char *name = (const char *)part + offsetof(struct part_head, name);
    if (strcmp(name, r->sites[site].name) != 0 || round > o->version + 1)
        return ROUNDS_STRANGE;
    if (round <= o->version)
        return ROUNDS_LATE;
    if (rounds_has_part(r, fragment, name))
        return ROUNDS_TWICE;
    o->opened_s = o->part_count ? o->opened_s : now_s;
    buffer_append(&o->parts[o->part_count++], part, bytes);
    return ROUNDS_TAKEN;
}

bool rounds_closes(const struct rounds *r, i64 fragment, double now_s)
{
    const struct rounds_of_fragment *o = &r->of[fragment];
    bool all = true;
    for (i64 i = 0; i < r->site_count; i++) /* a site that is ahead repeats what it has sent */
        if (r->sites[i].here && !r->sites[i].done && r->sites[i].version[fragment] >= o->version)
            all &= rounds_has_part(r, fragment, r->sites[i].name);
    return o->part_count > 0 &&
           ((all && o->part_count >= r->least) || (r->grace_s > 0 && now_s - o->opened_s >= r->grace_s));
}

void rounds_close(struct rounds *r, i64 fragment)
{
    struct rounds_of_fragment *o = &r->of[fragment];
    for (i64 i = 0; i < r->site_count; i++)
        r->sites[i].version[fragment] += r->sites[i].here && r->sites[i].version[fragment] == o->version;
    o->version++;
}

void rounds_done(struct rounds *r, i64 fragment)
{
    struct rounds_of_fragment *o = &r->of[fragment];
    for (i64 i = 0; i < o->part_count; i++)
        buffer_release(&o->parts[i]);
    o->part_count = 0;
}

void rounds_set(struct rounds *r, i64 fragment, i64 version)
{
    rounds_done(r, fragment);
    r->of[fragment].version = version;
}
