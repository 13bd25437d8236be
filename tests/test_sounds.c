/* Sounds survive the way to a file and back; bad ones are refused with a message that says why. The WAV files here are
 * put together byte by byte. */
#include "tests/media_fixture.h"

static void make_tone(struct sound *sound, i64 samples, i64 rate_hz, double tone_hz)
{
    sound_init(sound, samples, rate_hz);
    for (i64 i = 0; i < samples; i++)
        sound->values[i] = (float)(0.5 * sin(2 * M_PI * tone_hz * (double)i / (double)rate_hz));
}

static void wav_round_trip_is_exact_to_16_bits(void **state)
{
    (void)state;
    struct sound in, out;
    struct text wav = {0};
    make_tone(&in, 4000, 16000, 440);
    in.values[10] = 2;
    in.values[11] = -2;
    in.values[12] = NAN;
    sound_encode_wav(&wav, &in);
    assert_int_equal(media_kind(wav.data, wav.length, "a.wav"), MEDIA_SOUND);
    assert_int_equal(sound_read(&out, wav.data, wav.length, "a.wav", 16000), 0);
    assert_int_equal(out.samples, 4000);
    assert_int_equal(out.rate_hz, 16000);
    assert_true(out.values[10] > 0.999 && out.values[11] < -0.999 && out.values[12] == 0);
    for (i64 i = 13; i < 4000; i++)
        assert_true(fabsf(out.values[i] - in.values[i]) < 1.0f / 30000);
    sound_release(&in);
    sound_release(&out);
    text_release(&wav);
}

static void resampling_keeps_tone_and_length(void **state)
{
    (void)state;
    struct sound in, out, wanted;
    struct text wav = {0};
    make_tone(&in, 22050, 22050, 440);
    make_tone(&wanted, 16000, 16000, 440);
    sound_encode_wav(&wav, &in);
    assert_int_equal(sound_read(&out, wav.data, wav.length, "a.wav", 16000), 0);
    assert_true(llabs(out.samples - 16000) <= 1);
    for (i64 i = 100; i < 15900; i++) /* the ends see silence beside them */
        assert_true(fabsf(out.values[i] - wanted.values[i]) < 0.002f);
    sound_release(&in);
    sound_release(&out);
    sound_release(&wanted);
    text_release(&wav);
}

static void check_wav(int format, int bits, const void *data, i64 bytes, float wanted)
{
    struct text wav = {0};
    struct sound sound;
    make_wav(&wav, format, 2, bits, 8000, data, bytes);
    if (sound_read(&sound, wav.data, wav.length, "stereo.wav", 0) < 0)
        fail_msg("%s", error_text());
    assert_int_equal(sound.samples, 1);
    assert_int_equal(sound.rate_hz, 8000);
    assert_true(fabsf(sound.values[0] - wanted) < 1e-4f);
    sound_release(&sound);
    text_release(&wav);
}

static void channels_are_averaged_in_every_format(void **state)
{
    (void)state;
    const float floats[2] = {0.75f, -0.25f}, broken[2] = {NAN, 0.5f};
    check_wav(1, 8, "\xe0\x60", 2, 0.25f);
    check_wav(1, 16, "\0\x60\0\xe0", 4, 0.25f);
    check_wav(1, 24, "\0\0\x60\0\0\xe0", 6, 0.25f);
    check_wav(1, 32, "\0\0\0\x60\0\0\0\xe0", 8, 0.25f);
    check_wav(3, 32, floats, 8, 0.25f);
    check_wav(3, 32, broken, 8, 0);
}

static void refuse_sound(const void *bytes, i64 count, const char *wanted)
{
    struct sound sound;
    assert_int_equal(sound_read(&sound, bytes, count, "bad.wav", 16000), -1);
    assert_null(sound.values);
    assert_says("bad.wav");
    assert_says(wanted);
}

static void bad_sounds_are_refused(void **state)
{
    (void)state;
    struct text wav = {0}, nothing = {0}, png = {0};
    struct sound tone;
    make_tone(&tone, 1000, 8000, 100);
    sound_encode_wav(&wav, &tone);
    make_wav(&nothing, 1, 1, 16, 8000, "", 0);
    make_small_png(&png);
    refuse_sound("", 0, "an empty file");
    refuse_sound("RIFF", 4, "found text");
    refuse_sound(png.data, png.length, "found a PNG picture");
    refuse_sound(nothing.data, nothing.length, "no samples");
    for (i64 cut = 45; cut < wav.length; cut += 111)
        refuse_sound(wav.data, cut, "cut short");
    for (i64 cut = 12; cut < 45; cut++)
        refuse_sound(wav.data, cut, "");
    sound_release(&tone);
    text_release(&wav);
    text_release(&nothing);
    text_release(&png);
}

/* An ID3v1 tag: 128 bytes that begin with TAG. */
static void what_stands_behind_a_wav_is_not_read(void **state)
{
    (void)state;
    struct text wav = {0};
    struct sound sound;
    char tag[128] = "TAG a title";
    memset(tag + 20, 0x7e, 100);
    make_wav(&wav, 1, 1, 16, 8000, "aabbccddee", 10);
    text_append(&wav, tag, sizeof tag);
    if (sound_read(&sound, wav.data, wav.length, "tagged.wav", 8000) < 0)
        fail_msg("%s", error_text());
    assert_int_equal(sound.samples, 5);
    sound_release(&sound);
    memset(wav.data + 4, 0, 4); /* of open length: these bytes would be a chunk of the sound's file */
    refuse_sound(wav.data, wav.length, "cut short");
    text_release(&wav);
}

/* A long AVI file goes on in further RIFF chunks, which may be cut short as well. */
static void further_riff_chunks_are_checked(void **state)
{
    (void)state;
    struct text wav = {0};
    make_wav(&wav, 1, 1, 16, 8000, "aabbccddee", 10);
    text_append(&wav, "RIFF\x08\0\0\0AVIXmore", 16);
    struct sound sound;
    assert_int_equal(sound_read(&sound, wav.data, wav.length, "two.wav", 8000), 0);
    sound_release(&sound);
    refuse_sound(wav.data, wav.length - 1, "cut short");
    text_release(&wav);
}

/* Programs that write to a pipe cannot go back to fill in the length. */
static void a_wav_of_open_length_is_read_to_its_end(void **state)
{
    (void)state;
    struct text wav = {0};
    struct sound sound;
    make_wav(&wav, 1, 1, 16, 8000, "aabbccddee", 10);
    memset(wav.data + 40, 0xff, 4);
    assert_int_equal(sound_read(&sound, wav.data, wav.length, "pipe.wav", 8000), 0);
    assert_int_equal(sound.samples, 5);
    sound_release(&sound);
    text_release(&wav);
}

/* Of a long sound no more is decoded than shows that it is too long. */
static void a_limit_ends_the_reading_behind_it(void **state)
{
    (void)state;
    enum { SAMPLES = 200000 };
    struct sound in, out;
    struct text wav = {0};
    make_tone(&in, SAMPLES, 16000, 440);
    sound_encode_wav(&wav, &in);
    assert_int_equal(sound_read_most(&out, wav.data, wav.length, "long.wav", 16000, 20000), 0);
    assert_in_range(out.samples, 20001, 30000);
    sound_release(&out);
    assert_int_equal(sound_read_most(&out, wav.data, wav.length, "long.wav", 8000, 20000), 0);
    assert_in_range(out.samples, 20001, 30000);
    sound_release(&out);
    assert_int_equal(sound_read_most(&out, wav.data, wav.length, "long.wav", 16000, SAMPLES), 0);
    assert_int_equal(out.samples, SAMPLES);
    sound_release(&out);
    sound_release(&in);
    text_release(&wav);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wav_round_trip_is_exact_to_16_bits),      cmocka_unit_test(resampling_keeps_tone_and_length),
        cmocka_unit_test(channels_are_averaged_in_every_format),   cmocka_unit_test(bad_sounds_are_refused),
        cmocka_unit_test(what_stands_behind_a_wav_is_not_read),    cmocka_unit_test(further_riff_chunks_are_checked),
        cmocka_unit_test(a_wav_of_open_length_is_read_to_its_end), cmocka_unit_test(a_limit_ends_the_reading_behind_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
