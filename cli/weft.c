/* The program weft; main.c has its commands. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    return weft_main(argc, argv);
}
