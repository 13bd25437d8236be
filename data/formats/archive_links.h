/* Finds the members that links of a tar refer to: hard links, as tar writes them for files with
 * several names, and symbolic ones. The headers of the tar are read once, at the first link. */
#ifndef WEFT_DATA_ARCHIVE_LINKS_H
#define WEFT_DATA_ARCHIVE_LINKS_H
#include "data/formats/archive.h"

struct archive_links;
struct archive_link {
    const char *name, *target; /* as in the tar */
    bool symbolic;             /* the target is relative to the folder of the name */
    i64 number;                /* of the link among the members that archive_file_next returns, from 0 */
};
struct archive_links *archive_links_open(const char *path);
/* Appends the bytes of the member at the end of the link. *at: as archive_file_member_at. 1: it is
 * there; 0: the tar has no such member; -1: a message. */
int archive_links_read(struct archive_links *links, struct buffer *out, i64 *at, const struct archive_link *link);
void archive_links_close(struct archive_links *links);

#endif
