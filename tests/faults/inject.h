/* Failures of the system on request: the Nth call of a kind fails, as SQLite's tests do it. A
 * program that links inject.c has its calls of these functions go through it, and those of all
 * libraries; without a plan they pass. */
#ifndef WEFT_TESTS_INJECT_H
#define WEFT_TESTS_INJECT_H
#include "core/core.h"

enum fault_kind {
    FAULT_OPEN,      /* open, fopen, opendir */
    FAULT_READ,      /* read, pread, readdir */
    FAULT_WRITE,     /* write, pwrite, fflush */
    FAULT_SHORT,     /* write that writes half; the next one writes the rest */
    FAULT_SYNC,      /* fsync, fdatasync */
    FAULT_CLOSE,     /* close, fclose; the descriptor is closed */
    FAULT_RENAME,    /* rename, renameat2, link */
    FAULT_REMOVE,    /* unlink, rmdir, remove */
    FAULT_DIRECTORY, /* mkdir */
    FAULT_TRUNCATE,  /* ftruncate */
    FAULT_STATUS,    /* stat, lstat, fstat */
    FAULT_MAP,       /* mmap of a file */
    FAULT_MEMORY,    /* malloc, calloc, realloc, aligned_alloc and anonymous mmap, called by the program */
    FAULT_LIBRARY,   /* the same, called by a library */
    FAULT_KINDS
};
/* In memory that processes share, so that a parent sees what its child met. */
struct fault_plan {
    enum fault_kind kind;
    i64 number; /* the call that fails, from 1; 0: none */
    bool lasts; /* so do all calls of its kind after it */
    int error;  /* errno */
    bool shown; /* a failing call prints where it is, for addr2line -e */
    i64 calls[FAULT_KINDS];
    i64 failed; /* number of calls that failed */
};
extern struct fault_plan *fault_plan; /* NULL: nothing fails */
/* From now on the calls of this process are counted. */
void faults_begin(void);

#endif
