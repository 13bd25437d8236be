/* What the training captions alone tell: the best answer of one that does not look at the medium,
 * and classes of words that stand in for each other. */
#ifndef WEFT_CAPTION_BASELINE_H
#define WEFT_CAPTION_BASELINE_H
#include "core/core.h"

/* Returns the one text of the highest mean caption_accuracy over the captions: a caption, or words
 * that were added one by one, each the best. "" without captions. Takes O(count^2) time. Free with
 * memory_free. */
char *caption_fixed_answer(char *const *captions, i64 count);

/* Fills common [a_count, b_count] with the number of different words that a caption of `a` has in common
 * with one of `b`, without case and without punctuation at both ends. */
void captions_common_words(float *common, char *const *a, i64 a_count, char *const *b, i64 b_count);

/* Classes of words: {left, right}, {gray, red, blue}. Two words are alike if the same words stand
 * before and after them (the cosine of the square roots of these counts); groups are merged while
 * their mean likeness is at least 0.45. Words are compared without case and without punctuation at
 * both ends. Frequent words, at most 100, are those that occur in 1 of 100 captions and 3 times or
 * more. */
enum { CAPTION_CLASSES_MOST = 5 };
struct caption_classes {
    char **words; /* [word_count] the frequent words, most frequent first */
    i32 *class;   /* [word_count] number of their class; -1: of none that is listed */
    i64 word_count, count;
};
/* Lists the largest classes of at least 2 words, which one caption in ten uses or more. */
void caption_classes_find(struct caption_classes *out, char *const *captions, i64 count);
void caption_classes_release(struct caption_classes *classes);
/* Returns the words of a text that belong to class `which`, separated by spaces; with `which` =
 * count, the words that are not frequent. Free with memory_free. */
char *caption_class_words(const struct caption_classes *classes, i64 which, const char *text);

#endif
