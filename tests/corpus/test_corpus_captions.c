/* Each caption is a line for tokenizers and for prepare, and a prompt that asks rl for its medium. */
#include "core/json.h"
#include "corpus/corpus.h"
#include "tests/scratch.h"

static void check_file(const char *name, const char *expected)
{
    struct buffer text = {0};
    succeed(file_read(&text, path_of(name)));
    assert_string_equal(text.length ? text.data : "", expected);
    buffer_release(&text);
}

TEST(captions_are_prompts_too)
{
    struct corpus corpus = {.directory = path_of("made")};
    for (enum split split = 0; split < SPLITS; split++) {
        char *part = path_join(corpus.directory, split_names[split]);
        succeed(directory_make(part));
        memory_free(part);
    }
    corpus_caption(&corpus, SPLIT_TRAIN, IMAGE, "1.png", "red apple, round, red", NULL);
    corpus_caption(&corpus, SPLIT_TEST, VIDEO, "2.mp4", "the bus moves up", NULL);
    corpus_caption(&corpus, SPLIT_TEST, AUDIO, "3.wav", "seven", "en-us+f3");
    succeed(corpus_save_captions(&corpus));
    corpus_release(&corpus);
    check_file("made/train/captions.jsonl", "{\"image\":\"image/1.png\",\"text\":\"red apple, round, red\"}\n");
    check_file("made/train/image_rl.jsonl",
               "{\"prompt\":\"red apple, round, red\",\"to\":\"image\",\"reward_model\":{\"style\":\"program\","
               "\"ground_truth\":\"red apple, round, red\"}}\n");
    check_file("made/train/video_rl.jsonl", "");
    check_file("made/test/image_rl.jsonl", "");
    check_file("made/test/captions.jsonl", "{\"video\":\"video/2.mp4\",\"text\":\"the bus moves up\"}\n"
                                           "{\"audio\":\"audio/3.wav\",\"text\":\"seven\",\"speaker\":\"en-us+f3\"}\n");
    check_file("made/test/video_rl.jsonl",
               "{\"prompt\":\"the bus moves up\",\"to\":\"video\",\"reward_model\":{\"style\":\"program\","
               "\"ground_truth\":\"the bus moves up\"}}\n");
    check_file("made/test/audio_rl.jsonl",
               "{\"prompt\":\"seven\",\"to\":\"audio\",\"reward_model\":{\"style\":\"model\","
               "\"ground_truth\":\"seven\"}}\n");
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
