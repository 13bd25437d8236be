/* Films: stores the soundtrack of a clip as audio parts behind it. */
#include "data/prepare/prepare_internal.h"
#include "data/media/silence.h"

/* Cuts a sound longer than audio_seconds into its non-silent pieces, as cut_sounds does. */
static int add_pieces(const struct prepare *p, struct made *made, const struct sound *sound)
{
    struct silence_cutter cutter;
    struct sound piece;
    double from_s;
    int more;
    silence_cutter_open_sound(&cutter, sound, p->settings->audio_seconds);
    while ((more = silence_cutter_next(&cutter, &piece, &from_s)) > 0)
        made_add_sound(made, &piece);
    silence_cutter_close(&cutter);
    return more;
}

static int add_sound(const struct prepare *p, struct item *item, struct made *made, struct sound *sound)
{
    if (sound->samples <= (i64)(p->settings->audio_seconds * AUDIO_RATE_HZ)) {
        made_add_sound(made, sound);
        return 0;
    }
    item->too_long |= !p->settings->cut_sounds;
    int status = item->too_long ? 0 : add_pieces(p, made, sound);
    sound_release(sound);
    return status;
}

int film_sound_take(const struct prepare *p, struct item *item, struct made *made, const void *bytes, i64 count,
                    const char *origin)
{
    bool demand = p->settings->film_sound == FILM_SOUND_DEMAND;
    struct sound sound;
    if (p->settings->film_sound == FILM_SOUND_NONE)
        return 0;
    int status = film_sound_read(&sound, bytes, count, origin, AUDIO_RATE_HZ, item->from_s, made->clip.seconds);
    if (status < 0 && !demand && !item->damage)
        item->damage = string_copy(error_text());
    if (status < 0)
        return demand ? -1 : 0;
    if (sound.samples && p->curation)
        curation_sound(p->curation, &item->curate, sound.values, sound.samples, AUDIO_RATE_HZ);
    if (sound.samples && add_sound(p, item, made, &sound) < 0)
        return -1;
    item->mute |= !made->sound_count && !item->too_long;
    item->left_out |= item->mute && demand;
    return 0;
}

void film_sound_tell(struct prepare *p, const struct item *item)
{
    p->counts.mute += item->mute;
    p->counts.damaged_sounds += item->damage != NULL;
    if (item->damage)
        log_warn("%s: the sound of a clip is left out: %s", item->sample.name, item->damage);
}
