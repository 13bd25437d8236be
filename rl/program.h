/* External programs as rewards and environments. The program reads JSON lines on stdin and writes
 * one line for each on stdout:
 *
 *   stdin   {"id":0,"data_source":..,"ability":..,"prompt":[..],"response":"..",
 *            "ground_truth":..,"extra_info":{..},"turn":0}
 *   stdout  {"score":0.5}   or   {"observation":"text given to the model, which then continues"}
 *
 * Answers are in the order of the questions, or in any order with their "id". One time limit covers
 * all lines. The program runs in its own process group, which is killed when it has answered or the
 * limit has passed. */
#ifndef WEFT_RL_PROGRAM_H
#define WEFT_RL_PROGRAM_H
#include "core/json.h"

/* Asks `count` questions within `seconds`. answers [count]: one object each, which the caller frees
 * with json_free. argv ends with NULL. -1 and a message, and no answers, if the program cannot be
 * started, ends too early, exceeds the limit or writes anything else. */
int program_ask(struct json **answers, char *const *argv, struct json *const *questions, i64 count, double seconds);

#endif
