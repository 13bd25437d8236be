/* A program that runs with all processes that it starts, and ends with them. */
#ifndef WEFT_CORE_SUPERVISED_H
#define WEFT_CORE_SUPERVISED_H
/* Runs a program (PATH is searched) until it ends or interrupted(), in a process group of its own,
 * which takes the terminal while it runs. Kills what it leaves behind, in sessions of their own
 * too. If this process dies, all of them die. argv ends with NULL, and argv[0] names the program in
 * messages. Returns 0 if the program exits with status 0, otherwise -1 and a message. */
int supervised_run(const char *program, char **argv);
#endif
