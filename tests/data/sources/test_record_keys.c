/* Keys of records beside those of their form: what they change is in the sample, or the record is
 * refused or counted by the key's name. The expected texts are written by hand after what the
 * trainers named in docs/collections.md make of such records. */
#include "core/json.h"
#include "data/sources/sources.h"
#include "tests/scratch.h"
#include "tests/tier.h"

static void draw_sample(struct buffer *out, const struct sample *sample)
{
    static const char *const layouts[] = {"plain", "captioned", "chat", "mixed"};
    buffer_printf(out, "%s", layouts[sample->layout]);
    for (i64 i = 0; i < sample->count; i++) {
        const struct sample_part *part = &sample->parts[i];
        const char *slash = part->path ? strrchr(part->path, '/') : NULL;
        if (part->role)
            buffer_printf(out, " <%s%s>", part->role, part->unlearned ? ", read only" : "");
        if (part->kind != MODALITY_TEXT)
            buffer_printf(out, " %s@%s", modality_rows[part->kind].name, slash ? slash + 1 : "");
        if (part->bytes.length)
            buffer_printf(out, " '%s'", part->bytes.data);
        if (part->keys)
            json_print(out, part->keys, 0);
    }
    if (sample->variables) {
        buffer_printf(out, " with ");
        json_print(out, sample->variables, 0);
    }
}

/* Appends the samples of a file, "bad: WHY", and after "; " the notes. */
static void draw(struct buffer *out, const char *path, const struct source_columns *columns)
{
    struct source *source = source_open(path, &(struct source_request){.columns = columns});
    struct sample sample;
    enum source_result result;
    i64 count;
    if (!source)
        fail_msg("%s", error_text());
    while ((result = source_next(source, &sample)) != SOURCE_END) {
        const char *why = strchr(error_text(), ' ');
        if (result == SOURCE_SAMPLE)
            draw_sample(out, &sample);
        else
            buffer_printf(out, "bad:%s", why ? why : "");
        sample_release(&sample);
    }
    const struct source_note *notes = source_notes(source, &count);
    for (i64 i = 0; i < count; i++)
        buffer_printf(out, "; %lld %s", (long long)notes[i].count, notes[i].what);
    source_close(source);
}

struct record_case {
    const char *record, *expected;
};

/* Each record alone, as a line and in a list. */
static void check(const struct record_case *cases, i64 count, const struct source_columns *columns)
{
    memory_free(put_text("red.png", "?"));
    memory_free(put_text("a.wav", "?"));
    for (i64 i = 0; i < 2 * count; i++) {
        struct buffer drawn = {0};
        bool listed = i >= count;
        const struct record_case *one = &cases[i % count];
        char *text = string_format(listed ? "[%s]" : "%s\n", one->record);
        char *path = put_text(listed ? "record.json" : "record.jsonl", text);
        draw(&drawn, path, columns);
        if (strcmp(drawn.data ? drawn.data : "", one->expected) != 0)
            fail_msg("%s\ngives    %s\nexpected %s", one->record, drawn.data, one->expected);
        buffer_release(&drawn);
        memory_free(path);
        memory_free(text);
    }
}
#define CHECK(...)                                                                                                     \
    do {                                                                                                               \
        const struct record_case cases[] = {__VA_ARGS__};                                                              \
        check(cases, COUNT_OF(cases), NULL);                                                                           \
    } while (0)

#define TURN "\"prompt\": \"q\", \"completion\": \"a\""
#define CHAT "\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"}]"
#define SAID "chat <user> 'q' <assistant> 'a'"

static void what_a_template_reads_stays(void **state)
{
    CHECK({"{" CHAT ", \"tools\": [{\"name\": \"f\"}]}", SAID " with {\"tools\":[{\"name\":\"f\"}]}"},
          {"{" TURN ", \"tools\": \"[{\\\"name\\\": \\\"f\\\"}]\"}", SAID " with {\"tools\":[{\"name\":\"f\"}]}"},
          {"{" TURN ", \"functions\": [{\"name\": \"f\"}]}",
           SAID " with {\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}"},
          {"{" CHAT ", \"chat_template_kwargs\": {\"enable_thinking\": false}}",
           SAID " with {\"enable_thinking\":false}"},
          {"{" TURN ", \"documents\": [{\"text\": \"d\"}]}", SAID " with {\"documents\":[{\"text\":\"d\"}]}"},
          {"{" TURN ", \"tools\": [], \"documents\": null, \"functions\": \"\"}", SAID},
          {"{" TURN ", \"tools\": {\"f\": 1}}", "bad: key tools: expected a list, or one as a string of JSON"},
          {"{\"messages\": [{\"role\": \"system\", \"content\": \"s\", \"tools\": [{\"name\": \"f\"}]}]}",
           "chat <system> 's' with {\"tools\":[{\"name\":\"f\"}]}"},
          {"{\"text\": \"t\", \"tools\": [{\"name\": \"f\"}]}",
           "plain 't'; 1 keys \"tools\" of records, which are not read"},
          {"{\"input\": {\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"tools\": [{\"name\": \"f\"}], "
           "\"parallel_tool_calls\": true}, \"preferred_output\": [{\"role\": \"assistant\", \"content\": \"a\"}], "
           "\"non_preferred_output\": [{\"role\": \"assistant\", \"content\": \"b\"}]}",
           SAID
           " with {\"tools\":[{\"name\":\"f\"}]}; 1 keys \"non_preferred_output\" of records, whose answers are not "
           "learned; 1 keys \"parallel_tool_calls\" of records, which are not read"});
    (void)state;
}

static void questions_keep_what_belongs_to_them(void **state)
{
    CHECK(
        {"{\"question\": \"q\", \"context\": \"c\", \"answer\": \"a\"}", "chat <user> 'c\n\nq' <assistant> 'a'"},
        {"{" TURN ", \"passage\": [\"c\", \"d\"], \"hint\": \"h\"}", "chat <user> 'c\n\nd\n\nh\n\nq' <assistant> 'a'"},
        {"{" CHAT ", \"document\": \"c\"}", "chat <user> 'c\n\nq' <assistant> 'a'"},
        {"{" TURN ", \"documents\": [\"c\"]}", "chat <user> 'c\n\nq' <assistant> 'a'"},
        {"{\"prompt\": \"c or q\", \"completion\": \"a\", \"context\": \"c\"}", "chat <user> 'c or q' <assistant> 'a'"},
        {"{" TURN ", \"context\": {\"title\": [\"t\"]}}",
         "bad: key context: expected a text or a list of texts that stand before the question"},
        {"{" TURN ", \"context\": 5}", SAID "; 1 keys \"context\" of records, which are not read"},
        {"{\"text\": \"t\", \"context\": \"c\"}", "plain 't'; 1 keys \"context\" of records, which are not read"},
        {"{\"instruction\": \"q\", \"context\": \"c\", \"response\": \"a\"}", "chat <user> 'q\nc' <assistant> 'a'"},
        {"{\"instruction\": \"\", \"input\": \"q\", \"output\": \"a\"}", SAID},
        {"{" TURN ", \"input\": \"c\"}", "chat <user> 'q\nc' <assistant> 'a'"},
        {"{" TURN ", \"system_prompt\": \"s\"}", "chat <system> 's' <user> 'q' <assistant> 'a'"},
        {"{" CHAT ", \"system\": \"s\"}", "chat <system> 's' <user> 'q' <assistant> 'a'"},
        {"{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}], \"system\": \"s\"}", "chat <system> 's'"},
        {"{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}], \"system\": \"t\"}",
         "bad: key system: the messages begin with another system message"},
        {"{\"question\": \"q\", \"reasoning\": \"so\", \"answer\": \"a\"}", SAID "{\"reasoning_content\":\"so\"}"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
         "\"b\"}], "
         "\"cot\": \"so\"}",
         "bad: key cot: expected it at the answer that it belongs to, as its key reasoning_content"});
    (void)state;
}

static void earlier_turns_stand_before_the_question(void **state)
{
    CHECK({"{\"instruction\": \"q\", \"output\": \"a\", \"system\": \"s\", \"history\": [[\"x\", \"y\"]]}",
           "chat <system> 's' <user> 'x' <assistant> 'y' <user> 'q' <assistant> 'a'"},
          {"{\"query\": \"q\", \"response\": \"a\", \"history\": [{\"role\": \"user\", \"content\": \"x\"}, {\"user\": "
           "\"y\", "
           "\"assistant\": \"z\"}]}",
           "chat <user> 'x' <user> 'y' <assistant> 'z' <user> 'q' <assistant> 'a'"},
          {"{" CHAT ", \"history\": \"[[\\\"x\\\", \\\"y\\\"]]\"}",
           "chat <user> 'x' <assistant> 'y' <user> 'q' <assistant> 'a'"},
          {"{" TURN ", \"history\": [\"x\", \"y\"]}",
           "bad: key history: expected a list of [QUESTION, ANSWER], or of messages"});
    (void)state;
}

static void questions_list_their_choices(void **state)
{
    CHECK({"{\"question\": \"q\", \"choices\": [\"x\", \"y\"], \"answer\": 1}",
           "chat <user> 'q\nA. x\nB. y' <assistant> 'B'"},
          {"{\"question\": \"q\", \"choices\": [\"1\", \"0\"], \"answer\": 1}",
           "chat <user> 'q\nA. 1\nB. 0' <assistant> 'B'"},
          {"{\"question\": \"q\", \"options\": {\"A\": \"x\", \"B\": \"y\"}, \"answer\": \"x\", \"answer_idx\": \"A\"}",
           "chat <user> 'q\nA. x\nB. y' <assistant> 'x'; 1 keys \"answer_idx\" of records, which are not read"},
          {"{\"question\": \"q\", \"choices\": {\"text\": [\"x\", \"y\"], \"label\": [\"1\", \"2\"]}, \"answerKey\": "
           "\"2\"}",
           "chat <user> 'q\n1. x\n2. y' <assistant> '2'"},
          {"{\"question\": \"q\", \"A\": \"x\", \"B\": \"y\", \"C\": \"z\", \"answer\": \"c\"}",
           "chat <user> 'q\nA. x\nB. y\nC. z' <assistant> 'C'"},
          {"{\"question\": \"q\", \"opa\": \"x\", \"opb\": \"y\", \"cop\": 0}",
           "chat <user> 'q\nA. x\nB. y' <assistant> 'A'"},
          {"{\"question\": \"q\\nA) x\\nB) y\", \"options\": [\"x\", \"y\"], \"answer\": \"B\"}",
           "chat <user> 'q\nA) x\nB) y' <assistant> 'B'"},
          {"{\"question\": \"q\", \"options\": [\"(A) x\", \"(B) y\"], \"answer\": \"(A)\"}",
           "chat <user> 'q\n(A) x\n(B) y' <assistant> '(A)'"},
          {"{\"question\": \"q\", \"options\": [\"x\", \"y\"], \"answer\": \"x\", \"label\": 0}",
           "chat <user> 'q\nA. x\nB. y' <assistant> 'x'; 1 keys \"label\" of records, which are not read"},
          {"{\"question\": \"q\", \"options\": [\"x\", \"y\"], \"answer\": 2}",
           "bad: the answer 2 is none of the 2 choices"},
          {"{\"question\": \"q\", \"options\": [\"x\", \"y\"], \"answer\": \"C\"}",
           "bad: the answer C is none of the 2 choices"},
          {"{\"question\": \"q\", \"input\": \"c\", \"options\": [\"x\", \"y\"], \"answer\": \"y\"}",
           "chat <user> 'q\nc\nA. x\nB. y' <assistant> 'y'"},
          {"{\"question\": \"q\", \"options\": 7, \"answer\": \"C\"}",
           "bad: key options: expected a list of texts as choices"});
    (void)state;
}

static void answers_have_several_forms(void **state)
{
    CHECK({"{\"question\": \"q\", \"answers\": {\"text\": [\"a\", \"b\"], \"answer_start\": [0, 1]}}",
           SAID "; 1 keys \"answers\" of records, of which the first answer is learned"},
          {"{\"question\": \"q\", \"answers\": [\"a\"]}", SAID},
          {"{\"question\": \"q\", \"answer\": {\"value\": \"a\", \"aliases\": []}}", SAID},
          {"{\"question\": \"q\", \"answer\": 42}", "chat <user> 'q' <assistant> '42'"},
          {"{\"question\": \"q\", \"answers\": {\"text\": [], \"answer_start\": []}}",
           "; 1 records whose key \"answers\" holds no answer"},
          {"{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], \"completion\": [{\"role\": \"assistant\", "
           "\"content\": "
           "\"a\"}]}",
           SAID},
          {"{\"question\": \"q\", \"answer\": true}", "bad: key answer: expected a text, a number, or a list of texts"},
          {"{\"prompt\": \"q\", \"response\": \"a\"}", SAID},
          {"{\"prompt\": \"q\", \"response\": [7, 8]}",
           "chat <user> 'q' <assistant> '7'; 1 keys \"response\" of records, of which the first answer is learned"});
    (void)state;
}

static void rejected_answers_are_not_learned(void **state)
{
#define REJECTED(key) "; 1 keys \"" key "\" of records, whose answers are not learned"
#define LEFT(key) "; 1 records whose key \"" key "\" says that they are not to be learned"
    CHECK({"{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"b\"}", SAID REJECTED("rejected")},
          {"{\"chosen\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"}], "
           "\"rejected\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}",
           SAID REJECTED("rejected")},
          {"{\"prompt\": \"q\", \"chosen\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
           "\"content\": "
           "\"a\"}]}",
           SAID},
          {"{\"prompt\": \"p\", \"chosen\": [{\"role\": \"user\", \"content\": \"q\"}]}",
           "bad: the messages of chosen ask something else than prompt"},
          {"{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}], \"chosen\": {\"from\": \"gpt\", \"value\": "
           "\"a\"}, "
           "\"rejected\": {\"from\": \"gpt\", \"value\": \"b\"}}",
           SAID REJECTED("rejected")},
          {"{" CHAT ", \"rejected_response\": \"b\"}", SAID REJECTED("rejected_response")},
          {"{" TURN ", \"negative\": [\"b\"]}", SAID REJECTED("negative")},
          {"{" TURN ", \"label\": false}", LEFT("label")}, {"{" TURN ", \"label\": true}", SAID},
          {"{" TURN ", \"label\": 3}", SAID "; 1 keys \"label\" of records, which are not read"},
          {"{" CHAT ", \"label\": \"False\"}", LEFT("label")},
          {"{\"instruction\": \"q\", \"output\": \"a\", \"kto_tag\": false}", LEFT("kto_tag")},
          {"{\"question\": \"q\", \"answer\": \"a\", \"is_correct\": 0}", LEFT("is_correct")},
          {"{" TURN ", \"bad\": true}", LEFT("bad")}, {"{" TURN ", \"bad\": false}", SAID},
          {"{" CHAT ", \"train\": false}", LEFT("train")}, {"{\"text\": \"t\", \"ignore\": 1}", LEFT("ignore")},
          {"{\"text\": \"t\", \"label\": 0}", "plain 't'; 1 keys \"label\" of records, which are not read"},
          {"{" CHAT ", \"weight\": 0}", "; 1 records whose key \"weight\" is 0: they are not learned"},
          {"{\"text\": \"t\", \"weight\": 0.0}", "; 1 records whose key \"weight\" is 0: they are not learned"},
          {"{" CHAT ", \"weight\": 1}", SAID},
          {"{" CHAT ", \"weight\": 0.5}", "bad: key weight: expected 0 or 1: parts of a weight are not read"},
          {"{" TURN ", \"score\": 0.1}", SAID "; 1 keys \"score\" of records, which are not read"},
          {"{" CHAT ", \"train_on_inputs\": true}",
           "bad: key train_on_inputs: it changes what is asked or learned, and is not read: leave the key out"},
          {"{" CHAT ", \"objects\": {\"ref\": [\"a\"]}}",
           "bad: key objects: it changes what is asked or learned, and is not read: leave the key out"});
    (void)state;
}

#define ANSWER(keys) "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", " keys "}]}"
#define READ_ONLY "chat <user> 'q' <assistant, read only> 'a'"
#define DENIED(key) READ_ONLY "; 1 keys \"" key "\" of messages, whose answers are not learned"

static void marked_answers_are_read_only(void **state)
{
    CHECK({ANSWER("\"content\": \"a\", \"loss_weight\": 0"), READ_ONLY},
          {ANSWER("\"content\": \"a\", \"loss_weight\": 0.5"),
           "bad: message 2: key loss_weight: expected 0, 1, false or true"},
          {ANSWER("\"content\": \"a\", \"learn\": false"), DENIED("learn")},
          {ANSWER("\"content\": \"a\", \"is_correct\": \"False\""), DENIED("is_correct")},
          {ANSWER("\"content\": \"a\", \"ignore\": true"), DENIED("ignore")},
          {ANSWER("\"content\": \"a\", \"masked\": 1"), DENIED("masked")},
          {ANSWER("\"content\": null"),
           "chat <user> 'q' <assistant, read only>; 1 keys \"content\" of answers that are "
           "null, which are not learned"},
          {ANSWER("\"content\": \"\""), "chat <user> 'q' <assistant>"});
    (void)state;
}

#define REFUSED(key) "bad: key " key ": it changes what is asked or learned, and is not read: leave the key out"

/* Flags whose names are those of no table, but speak of learning. */
static void names_that_speak_of_learning_are_honoured(void **state)
{
    CHECK({ANSWER("\"content\": \"a\", \"train_on_turn\": false"), DENIED("train_on_turn")},
          {ANSWER("\"content\": \"a\", \"no_loss\": true"), DENIED("no_loss")},
          {ANSWER("\"content\": \"a\", \"isTrainable\": 0"), DENIED("isTrainable")},
          {ANSWER("\"content\": \"a\", \"is_masked\": true"), DENIED("is_masked")},
          {ANSWER("\"content\": \"a\", \"calculate_loss\": true"), SAID},
          {ANSWER("\"content\": \"a\", \"assistant_mask\": 1"),
           "bad: message 2: key assistant_mask: it changes what is learned and is not read: leave the key out"},
          {"{\"messages\": [{\"role\": \"user\", \"content\": \"q\", \"trainable\": true}]}",
           "bad: message 1: key trainable: this message is no answer, and only answers are learned: leave the key out"},
          {"{" CHAT ", \"used_in_training\": \"no\"}", LEFT("used_in_training")},
          {"{\"text\": \"t\", \"trainable\": false}", LEFT("trainable")},
          {"{" CHAT ", \"mask_history\": true}", REFUSED("mask_history")},
          {"{" CHAT ", \"mask_history\": 0.25, \"train_on_last\": false, \"train_loss\": 0.5, \"train_idx\": 0}", SAID
           "; 1 keys \"mask_history\" of records, which are not read; 1 keys \"train_on_last\" of records, which are "
           "not read; 1 keys \"train_loss\" of records, which are not read; 1 keys \"train_idx\" of records, which "
           "are not read"},
          {"{" CHAT ", \"loss_mask\": [0, 1]}", REFUSED("loss_mask")},
          {"{" CHAT ", \"completion_mask\": [0, 1]}", REFUSED("completion_mask")},
          {"{\"prompt\": \"q\", \"completion\": [\"a\", \"b\"], \"labels\": [false, true]}", REFUSED("labels")},
          {"{\"prompt\": \"q\", \"response\": [\"a\", \"b\"], \"best\": 1}", REFUSED("best")},
          {"{" CHAT ", \"isCorrect\": false}", LEFT("isCorrect")},
          {"{" TURN ", \"Is_Valid\": \"no\"}", LEFT("Is_Valid")},
          {"{" TURN ", \"is_chosen\": false}", LEFT("is_chosen")}, {"{" TURN ", \"chosen\": false}", LEFT("chosen")},
          {"{" TURN ", \"discard\": true}", LEFT("discard")}, {"{" TURN ", \"passed\": false}", LEFT("passed")},
          {"{\"question\": \"q\", \"answer\": \"a\", \"Context\": \"c\"}", "chat <user> 'c\n\nq' <assistant> 'a'"},
          {"{" CHAT ", \"reasoning\": \"on\"}", SAID "; 1 keys \"reasoning\" of records, which are not read"});
    (void)state;
}

static void an_answer_is_the_chosen_one(void **state)
{
    CHECK({"{\"prompt\": \"q\", \"response\": \"b\", \"chosen\": \"a\", \"rejected\": \"b\"}",
           "bad: key chosen: another answer than that of the record: expected one of them" REJECTED("rejected")},
          {"{\"prompt\": \"q\", \"response\": \"b\", \"chosen\": \"good\"}",
           "bad: key chosen: another answer than that of the record: expected one of them"},
          {"{" CHAT ", \"chosen\": [{\"role\": \"assistant\", \"content\": \"b\"}]}",
           "bad: key chosen: another answer than that of the record: expected one of them"},
          {"{" CHAT ", \"chosen\": \" a\"}",
           SAID "; 1 keys \"chosen\" of records, whose messages have an answer already"},
          {"{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"response\": \"a\"}", SAID},
          {"{" CHAT ", \"answer\": \"42\"}",
           SAID "; 1 keys \"answer\" of records, whose messages have an answer already"},
          {"{\"question\": \"q\", \"choices\": [\"x\", \"y\"], \"answer\": 1.0}",
           "chat <user> 'q\nA. x\nB. y' <assistant> 'B'"},
          {"{\"question\": \"q\", \"a\": \"x\", \"b\": \"y\", \"answer\": \"b\"}",
           "chat <user> 'q\nA. x\nB. y' <assistant> 'B'"},
          {"{\"question\": \"q\", \"A\": \"x\", \"answer\": \"a\"}",
           SAID "; 1 keys \"A\" of records, which are not read"},
          {ANSWER("\"tool_calls\": \"[{\\\"name\\\": \\\"f\\\"}]\""),
           "chat <user> 'q' <assistant>{\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
           "\"arguments\":{}}}]}"},
          {ANSWER("\"content\": \"\", \"tool_calls\": \"f(1)\""),
           "bad: message 2: key tool_calls: expected a list of calls, or one as a string of JSON"});
    (void)state;
}

#define PARTS(parts) "{\"messages\": [{\"role\": \"user\", \"content\": [" parts "]}], \"images\": [\"red.png\"]}"

static void parts_lose_nothing(void **state)
{
    CHECK({ANSWER("\"content\": [{\"type\": \"text\", \"text\": \"a\", \"train\": false}]"),
           "bad: message 2: key train of a part: it changes what is learned and is not read: make two messages of the "
           "parts, or leave the key out"},
          {ANSWER("\"content\": [{\"type\": \"text\", \"text\": \"a\", \"citations\": [1]}]"),
           SAID "; 1 keys \"citations\" of parts, which are not read"},
          {PARTS("{\"type\": \"text\", \"text\": \"q\", \"image\": \"red.png\"}, {\"type\": \"image\"}"),
           "bad: message 1: a part of type text has a key image too: expected a part for each"},
          {PARTS("{\"type\": \"image\", \"index\": 0, \"text\": null}, {\"type\": \"text\", \"text\": \"q\"}"),
           "chat <user> image@red.png 'q'"},
          {PARTS("{\"type\": \"image\", \"index\": 1}"),
           "bad: message 1: a part of type image has the index 1: expected them in the order of \"images\""});
    (void)state;
}

#define ASKED(text, keys) "{\"prompt\": \"" text "\", \"completion\": \"a\"" keys "}"

static void marks_of_other_programs_are_places(void **state)
{
    CHECK({ASKED("<img>red.png</img>q", ""), "chat <user> image@red.png 'q' <assistant> 'a'"},
          {ASKED("<img>no.png</img>q", ""), "chat <user> image@no.png 'q' <assistant> 'a'"},
          {ASKED("<audio>a.wav</audio>q", ""), "chat <user> audio@a.wav 'q' <assistant> 'a'"},
          {ASKED("<audio>b.wav</audio>", ""), "chat <user> '<audio>b.wav</audio>' <assistant> 'a'; 1 marks <audio> in "
                                              "conversations that list no media, read as text"},
          {ASKED("<img>a word</img>", ""), "chat <user> '<img>a word</img>' <assistant> 'a'"},
          {ASKED("<img>https://a/b.png</img>", ""),
           "bad: message 1: https://a/b.png: media must be files; nothing is downloaded"},
          {ASKED("<img>red.png</img>", ", \"images\": [\"red.png\"]"),
           "bad: 1 pictures are listed, and the messages refer to 1: expected as many <image>, or none"},
          {ASKED("<image1>, <image2>", ", \"images\": [\"red.png\", \"red.png\"]"),
           "chat <user> image@red.png ', ' image@red.png <assistant> 'a'"},
          {ASKED("<image2>, <image1>", ", \"images\": [\"red.png\", \"red.png\"]"),
           "bad: 2 pictures are listed, and the messages have 2 marks of other programs: expected as many in order, or "
           "<image>"},
          {ASKED("<|vision_start|><|image_pad|><|vision_end|>q", ", \"image\": \"red.png\""),
           "chat <user> image@red.png 'q' <assistant> 'a'"},
          {ASKED("<speech> q", ", \"audio\": \"a.wav\""), "chat <user> audio@a.wav ' q' <assistant> 'a'"},
          {"{\"audio_filepath\": \"a.wav\", \"offset\": 1.5, \"text\": \"t\"}",
           "bad: key offset: the text belongs to a piece of the file, which is not cut: cut it, or leave the key out"},
          {"{\"audio_filepath\": \"a.wav\", \"offset\": 0, \"text\": \"t\"}",
           "captioned audio@a.wav 't'; 1 keys \"offset\" of records, which are not read"});
    (void)state;
}

static void marks_without_media_are_counted(void **state)
{
    CHECK(
        {"{\"prompt\": \"<image> q\", \"completion\": \"a\"}",
         "chat <user> '<image> q' <assistant> 'a'; 1 marks <image> in conversations that list no media, read as text"},
        {"{\"prompt\": \"<imagine> q\", \"completion\": \"a\"}", "chat <user> '<imagine> q' <assistant> 'a'"});
    (void)state;
}

#define SEEN "chat <user> image@red.png 'q' <assistant> 'a'"

static void listed_media_have_a_place(void **state)
{
    CHECK({"{" CHAT ", \"images\": [\"red.png\"]}", SEEN}, {"{" TURN ", \"image\": \"red.png\"}", SEEN},
          {"{\"query\": \"q\", \"response\": \"a\", \"images\": [{\"path\": \"red.png\"}], \"audios\": [\"a.wav\"]}",
           "chat <user> image@red.png audio@a.wav 'q' <assistant> 'a'"},
          {"{\"question\": \"q\", \"answer\": \"a\", \"images\": \"[\\\"red.png\\\"]\"}", SEEN},
          {"{\"instruction\": \"q\", \"output\": \"a\", \"history\": [[\"x\", \"y\"]], \"images\": [\"red.png\"]}",
           "chat <user> image@red.png 'x' <assistant> 'y' <user> 'q' <assistant> 'a'"},
          {"{\"prompt\": \"is <image> q\", \"completion\": \"a\", \"images\": [\"red.png\"]}",
           "chat <user> 'is ' image@red.png ' q' <assistant> 'a'"},
          {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"q\"}, {\"type\": "
           "\"image\"}]}], "
           "\"images\": [\"red.png\"]}",
           "chat <user> 'q' image@red.png"},
          {"{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": [{\"type\": "
           "\"text\", "
           "\"text\": \"q\"}]}], \"images\": [\"red.png\", null]}",
           "chat <system> 's' <user> image@red.png 'q'"},
          {"{\"messages\": [{\"role\": \"user\", \"content\": \"q\", \"images\": [\"red.png\"]}, {\"role\": "
           "\"assistant\", "
           "\"content\": \"a\"}]}",
           SEEN},
          {"{\"prompt\": \"say <audio>\", \"completion\": \"a\", \"images\": [\"red.png\"], \"audios\": [\"a.wav\"]}",
           "chat <user> image@red.png 'say ' audio@a.wav <assistant> 'a'"},
          {"{" TURN ", \"images\": [], \"image\": {\"bytes\": null, \"path\": null}}", SAID},
          {"{\"prompt\": \"<image> q\", \"completion\": \"a\", \"images\": [\"red.png\", \"red.png\"]}",
           "bad: 2 pictures are listed, and the messages refer to 1: expected as many <image>, or none"},
          {"{\"prompt\": \"<image> <image>\", \"completion\": \"a\", \"images\": [\"red.png\"]}",
           "bad: 1 pictures are listed, and the messages refer to 2: expected as many <image>, or none"},
          {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"images\": [\"red.png\"]}",
           "bad: pictures are listed without a question that they could stand in"},
          {"{" CHAT ", \"image\": \"a.png\", \"images\": [\"red.png\"]}",
           "bad: the keys image and images name different files: expected one of them"},
          {"{" CHAT ", \"point_clouds\": [\"a.ply\"]}",
           "bad: key point_clouds: it changes what is asked or learned, and is not read: leave the key out"},
          {"{\"text\": \"t\", \"images\": [\"red.png\"]}", "captioned image@red.png 't'"},
          {"{\"text\": \"t <image> u\", \"images\": [\"red.png\"]}", "mixed 't ' image@red.png ' u'"},
          {"{\"text\": \"t\", \"images\": [\"red.png\"], \"audios\": [\"a.wav\"]}",
           "mixed image@red.png audio@a.wav 't'"},
          {"{\"image\": \"red.png\", \"audio\": \"a.wav\", \"text\": \"t\"}",
           "bad: key audio: the record has a picture already: expected one medium with its caption"});
    (void)state;
}

static void media_have_other_names(void **state)
{
    CHECK(
        {"{" TURN ", \"img\": \"red.png\"}", SEEN}, {"{" CHAT ", \"image_path\": \"red.png\"}", SEEN},
        {"{" TURN ", \"wav\": \"a.wav\"}", "chat <user> audio@a.wav 'q' <assistant> 'a'"},
        {"{" TURN ", \"file_name\": \"red.png\"}", SEEN},
        {"{" TURN ", \"file_name\": \"no.png\"}", SAID "; 1 keys \"file_name\" of records, which are not read"},
        {"{" TURN ", \"voice\": \"female\"}", SAID "; 1 keys \"voice\" of records, which are not read"},
        {"{" TURN ", \"images\": [\"red.png\"], \"image_path\": \"x.png\"}",
         SEEN "; 1 keys \"image_path\" of records, which are not read"},
        {"{" TURN ", \"image_url\": \"https://a/b.png\"}",
         "bad: message 1: https://a/b.png: media must be files; nothing is downloaded"},
        {"{\"text\": \"t\", \"image_url\": \"https://a/b.png\"}",
         "plain 't'; 1 keys \"image_url\" of records, which are not read"},
        {"{\"img\": \"red.png\", \"caption\": \"t\"}", "captioned image@red.png 't'"},
        {"{\"content\": \"t\", \"path\": \"src/a.ts\"}", "plain 't'; 1 keys \"path\" of records, which are not read"});
    (void)state;
}

/* A file that is there under a name of no table is not lost in silence. */
static void media_of_unknown_names_are_refused(void **state)
{
#define PLACELESS(key)                                                                                                 \
    "bad: key " key ": it names a medium, and nothing says where it stands: call it image, video or audio, or leave "  \
    "the key out"
    CHECK({"{" TURN ", \"question_image\": \"red.png\"}", PLACELESS("question_image")},
          {"{" CHAT ", \"screenshots\": [\"red.png\"]}", PLACELESS("screenshots")},
          {"{" CHAT ", \"Image\": {\"path\": \"red.png\"}}", PLACELESS("Image")},
          {"{" TURN ", \"question_image\": \"no.png\"}",
           SAID "; 1 keys \"question_image\" of records, which are not read"},
          {"{" TURN ", \"id\": \"red.png\", \"image\": \"red.png\"}",
           SEEN "; 1 keys \"id\" of records, which are not read"},
          {"{\"text\": \"t\", \"screenshot\": \"red.png\"}",
           "plain 't'; 1 keys \"screenshot\" of records, which are not read"},
          {"{\"messages\": [{\"role\": \"user\", \"content\": \"q\", \"files\": [\"red.png\"]}]}",
           "bad: message 1: key files: it names a medium, and nothing reads it: call it image, video or audio"},
          {"{\"image\": \"a.png\", \"image_path\": \"red.png\", \"caption\": \"c\"}",
           "bad: key image_path: the record has a picture already: expected one medium with its caption"},
          {"{\"image\": \"red.png\", \"text\": \"t <image> u\"}", "mixed 't ' image@red.png ' u'"},
          {"{\"image\": \"red.png\", \"text\": \"<image><image>\"}",
           "bad: 1 media are listed, and the text has 2 marks of such"});
    (void)state;
}

/* With names that the user chose, marks and contexts count, and nothing else is noted. */
static void chosen_names_leave_keys_in_force(void **state)
{
    const struct source_columns columns = {.question = "q", .answer = "a"};
    const struct record_case cases[] = {
        {"{\"q\": \"x\", \"a\": \"y\", \"label\": false}", LEFT("label")},
        {"{\"q\": \"x\", \"a\": \"y\", \"context\": \"c\", \"id\": 1}", "chat <user> 'c\n\nx' <assistant> 'y'"},
        {"{\"q\": \"x\", \"a\": \"y\", \"objects\": [1]}",
         "chat <user> 'x' <assistant> 'y'; 1 keys \"objects\" of records, which are not read"}};
    check(cases, COUNT_OF(cases), &columns);
    (void)state;
}

static void expect(const char *name, const char *expected)
{
    char *path = string_format("%s/tables/forms/%s", GOLDEN, name);
    struct buffer drawn = {0};
    draw(&drawn, path, NULL);
    if (strncmp(drawn.data ? drawn.data : "", expected, strlen(expected)) != 0)
        fail_msg("%s: %s, expected %s", name, drawn.data, expected);
    buffer_release(&drawn);
    memory_free(path);
}

static void tables_have_the_same_keys(void **state)
{
    static const char *const suffixes[] = {"parquet", "arrow", "jsonl", "json", "csv"};
    static const struct {
        const char *name, *expected;
        i64 suffixes;
    } forms[] = {{"kto", "chat <user> '2+2' <assistant> '4'" LEFT("label"), 5},
                 {"squad", "chat <user> 'Ada has it.\n\nWho?' <assistant> 'Ada'; ", 4},
                 {"mmlu", "chat <user> '2+2\nA. 3\nB. 4\nC. 2' <assistant> 'B'; ", 4}};
    for (i64 i = 0; i < COUNT_OF(forms); i++)
        for (i64 k = 0; k < forms[i].suffixes; k++) {
            char *name = string_format("%s.%s", forms[i].name, suffixes[k]);
            expect(name, forms[i].expected);
            memory_free(name);
        }
    expect("vqa.parquet",
           "chat <user> image@ '\xff\xd8picture 1' 'What?' <assistant> 'an apple'; 1 tables with the column "
           "\"id\", which is not read; 1 keys \"image_path\" of records, which are not read");
    expect("asked.parquet",
           "chat <user> image@ '\xff\xd8picture 1' image@ '\xff\xd8picture 2' 'Both?' <assistant> 'yes'");
    (void)state;
}

#define CELL(role, text) "{\"\"role\"\": \"\"" role "\"\", \"\"content\"\": \"\"" text "\"\"}"

/* Cells of text that are JSON say what the same values of lines say. */
static void cells_are_read_as_values(void **state)
{
    static const struct record_case cases[] = {
        {"prompt,chosen\nq,\"[" CELL("user", "q") ", " CELL("assistant", "a") "]\"\n", SAID},
        {"prompt,completion\n\"[" CELL("user", "q") "]\",\"" CELL("assistant", "a") "\"\n", SAID},
        {"question,answers\nq,\"{\"\"text\"\": [\"\"a\"\"], \"\"answer_start\"\": [0]}\"\n", SAID},
        {"question,answer,context\nq,a,\"{\"\"contexts\"\": [\"\"c\"\"]}\"\n", "chat <user> 'c\n\nq' <assistant> 'a'"},
        {"prompt,completion\nq,\"{\"\"n\"\": 1}\"\n", "chat <user> 'q' <assistant> '{\"n\": 1}'"},
        {"prompt,completion,loss_mask\nq,a,\"[0, 1]\"\n", REFUSED("loss_mask")},
        {"prompt,completion,used_in_training\nq,a,no\n", LEFT("used_in_training")},
        {"prompt,completion,chosen\nq,a,False\n", LEFT("chosen")}};
    (void)state;
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct buffer drawn = {0};
        char *path = put_text("cells.csv", cases[i].record);
        draw(&drawn, path, NULL);
        if (strcmp(drawn.data ? drawn.data : "", cases[i].expected) != 0)
            fail_msg("%s\ngives    %s\nexpected %s", cases[i].record, drawn.data, cases[i].expected);
        buffer_release(&drawn);
        memory_free(path);
    }
}

/* Members that are null because another row has them are no members of a call. */
static void calls_of_tables_have_no_empty_arguments(void **state)
{
    static const char *const names[] = {"calls.parquet", "calls.arrow", "calls.jsonl", "calls.json"};
    static const char keys[] =
        "{\"thinking\":\"so\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":{\"a\":1}}}]} with {\"tools\":[{\"name\":\"f\"}]}";
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        char *path = string_format("%s/tables/forms/%s", GOLDEN, names[i]);
        struct buffer drawn = {0};
        draw(&drawn, path, NULL);
        if (!strstr(drawn.data, keys))
            fail_msg("%s: %s", names[i], drawn.data);
        buffer_release(&drawn);
        memory_free(path);
    }
    (void)state;
}

static void a_record_names_its_split(void **state)
{
    static const enum split expected[] = {SPLIT_TEST, SPLIT_VALIDATION, SPLIT_TRAIN};
    char *path = put_text("own.jsonl", "{\"text\": \"a\", \"split\": \"test\"}\n{\"text\": \"b\", \"split\": \"dev\"}\n"
                                       "{\"text\": \"c\", \"split\": \"train\"}\n");
    struct source *source = source_open(path, &(struct source_request){.validation = 0, .test = 0});
    struct sample sample;
    for (i64 i = 0; i < COUNT_OF(expected); i++) {
        assert_int_equal(source_next(source, &sample), SOURCE_SAMPLE);
        assert_int_equal(sample.split, expected[i]);
        sample_release(&sample);
    }
    source_close(source);
    memory_free(path);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_template_reads_stays),
        cmocka_unit_test(questions_keep_what_belongs_to_them),
        cmocka_unit_test(earlier_turns_stand_before_the_question),
        cmocka_unit_test(questions_list_their_choices),
        cmocka_unit_test(answers_have_several_forms),
        cmocka_unit_test(rejected_answers_are_not_learned),
        cmocka_unit_test(marked_answers_are_read_only),
        cmocka_unit_test(names_that_speak_of_learning_are_honoured),
        cmocka_unit_test(an_answer_is_the_chosen_one),
        cmocka_unit_test(parts_lose_nothing),
        cmocka_unit_test(marks_of_other_programs_are_places),
        cmocka_unit_test(marks_without_media_are_counted),
        cmocka_unit_test(listed_media_have_a_place),
        cmocka_unit_test(media_have_other_names),
        cmocka_unit_test(media_of_unknown_names_are_refused),
        cmocka_unit_test(chosen_names_leave_keys_in_force),
        cmocka_unit_test(tables_have_the_same_keys),
        cmocka_unit_test(cells_are_read_as_values),
        cmocka_unit_test(calls_of_tables_have_no_empty_arguments),
        cmocka_unit_test(a_record_names_its_split),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
