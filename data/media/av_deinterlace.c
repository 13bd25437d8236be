/* Deinterlaces with libavfilter's bwdif. Each interlaced frame gives one frame, built from its
 * first field and the fitting parts of the second; frames not marked as interlaced pass
 * unchanged. */
#include "data/media/av_deinterlace.h"
#include <libavfilter/avfilter.h>
#include <libavfilter/buffersink.h>
#include <libavfilter/buffersrc.h>
#include <stdio.h>

struct deinterlacer {
    AVFilterGraph *graph;
    AVFilterContext *in, *out;
    const char *origin;
    int width, height, format;
    AVRational base;
};

bool frame_is_interlaced(const AVFrame *frame)
{
#ifdef AV_FRAME_FLAG_INTERLACED
    return frame->flags & AV_FRAME_FLAG_INTERLACED;
#else
    return frame->interlaced_frame;
#endif
}

static int build(struct deinterlacer *d, const AVFrame *like)
{
    char how[160];
    AVFilterContext *bwdif = NULL;
    const AVFilter *filter = avfilter_get_by_name("bwdif");
    if (!filter)
        return error_set("%s: interlaced, and this libavfilter has no bwdif; deinterlace it, or install another FFmpeg",
                         d->origin);
    snprintf(how, sizeof how, "video_size=%dx%d:pix_fmt=%d:time_base=%d/%d", like->width, like->height, like->format,
             d->base.num, d->base.den);
    d->graph->nb_threads = 1;
    int code = avfilter_graph_create_filter(&d->in, avfilter_get_by_name("buffer"), "in", how, NULL, d->graph);
    if (code >= 0)
        code =
            avfilter_graph_create_filter(&bwdif, filter, "bwdif", "mode=send_frame:deint=interlaced", NULL, d->graph);
    if (code >= 0)
        code = avfilter_graph_create_filter(&d->out, avfilter_get_by_name("buffersink"), "out", NULL, NULL, d->graph);
    if (code >= 0)
        code = avfilter_link(d->in, 0, bwdif, 0);
    if (code >= 0)
        code = avfilter_link(bwdif, 0, d->out, 0);
    if (code >= 0)
        code = avfilter_graph_config(d->graph, NULL);
    return code < 0 ? av_problem(d->origin, "an interlaced video", code) : 0;
}

struct deinterlacer *deinterlacer_open(const struct av_input *input, const AVFrame *like)
{
    struct deinterlacer *d = memory_alloc(sizeof *d);
    *d = (struct deinterlacer){avfilter_graph_alloc(), .origin = input->origin, .width = like->width,
                               .height = like->height, .format = like->format,  .base = input->stream->time_base};
    require_memory(d->graph, "libav");
    if (build(d, like) == 0)
        return d;
    deinterlacer_close(d);
    return NULL;
}

void deinterlacer_close(struct deinterlacer *d)
{
    if (d)
        avfilter_graph_free(&d->graph);
    memory_free(d);
}

int deinterlacer_give(struct deinterlacer *d, AVFrame *frame)
{
    if (frame && (frame->width != d->width || frame->height != d->height || frame->format != d->format))
        return error_set("%s: interlaced video that changes its size; convert it to one size", d->origin);
    if (frame)
        frame->pts = frame->best_effort_timestamp;
    int code = av_buffersrc_add_frame(d->in, frame);
    return code < 0 ? av_problem(d->origin, "an interlaced video", code) : 0;
}

int deinterlacer_take(struct deinterlacer *d, AVFrame *frame)
{
    int code = av_buffersink_get_frame(d->out, frame);
    if (code == AVERROR(EAGAIN) || code == AVERROR_EOF)
        return 0;
    if (code < 0)
        return av_problem(d->origin, "an interlaced video", code);
    if (frame->pts != AV_NOPTS_VALUE)
        frame->pts = av_rescale_q(frame->pts, av_buffersink_get_time_base(d->out), d->base);
    frame->best_effort_timestamp = frame->pts;
    return 1;
}
