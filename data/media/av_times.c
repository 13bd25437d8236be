/* Times of streams that are several recordings one behind the other, or that were interrupted: MPEG
 * transport and programme streams, FLV. Where times begin anew or jump, the stream is put together
 * as if it went on. */
#include "data/media/av_input.h"
#include <math.h>
#include <string.h>

/* Decoding times within a recording do not run backwards; within a stream of packets, players take
 * a gap of more than ten seconds for a jump of the clock. */
static const double back_s = 0.5, gap_s = 10;

static bool may_jump(const struct av_input *input)
{
    return input->format->iformat->flags & AVFMT_TS_DISCONT || strcmp(input->kind->reader, "flv") == 0;
}

static i64 packet_duration(const struct av_input *input)
{
    AVRational rate = input->stream->avg_frame_rate, base = input->stream->time_base;
    if (input->packet->duration > 0 || rate.num <= 0 || rate.den <= 0)
        return input->packet->duration;
    return llrint(1 / (av_q2d(rate) * av_q2d(base)));
}

void input_join_times(struct av_input *input)
{
    AVPacket *packet = input->packet;
    struct av_clock *clock = &input->clock;
    if (packet->dts == AV_NOPTS_VALUE || !may_jump(input))
        return;
    double away_s = (double)(packet->dts + clock->offset - clock->expected) * av_q2d(input->stream->time_base);
    if (clock->any && (away_s < -back_s || away_s > gap_s)) {
        clock->offset = clock->expected - packet->dts;
        clock->jumps++;
    }
    clock->any = true;
    clock->expected = packet->dts + clock->offset + packet_duration(input);
    packet->dts += clock->offset;
    if (packet->pts != AV_NOPTS_VALUE)
        packet->pts += clock->offset;
}

/* Reads all packets of `like` (the stream of this number) without decoding: the number of jumps and
 * the time from the first packet to the end of the last. */
static int scan(i64 *jumps, double *seconds, const struct av_input *like, int index)
{
    struct av_input input;
    int status = input_open(&input, like->bytes, like->count, like->origin, like->kind);
    i64 first = AV_NOPTS_VALUE;
    if (status == 0 && (unsigned)index < input.format->nb_streams) {
        input.stream = input.format->streams[index];
        while (av_read_frame(input.format, input.packet) >= 0) {
            if (input.packet->stream_index == index) {
                input_join_times(&input);
                first = first == AV_NOPTS_VALUE ? input.packet->dts : first;
            }
            av_packet_unref(input.packet);
        }
        *jumps = input.clock.jumps;
        *seconds =
            first == AV_NOPTS_VALUE ? 0 : (double)(input.clock.expected - first) * av_q2d(input.stream->time_base);
    }
    input_close(&input);
    return status;
}

bool input_jumps(struct av_input *input, int index, double *seconds)
{
    double all_s = 0;
    if (!input->scanned && may_jump(input))
        scan(&input->jumps, &all_s, input, index);
    input->scanned = true;
    if (input->jumps > 0 && seconds)
        *seconds = all_s;
    return input->jumps > 0;
}

int input_seek(struct av_input *input, int index, i64 stamp)
{
    int code = input_jumps(input, index, NULL) ? AVERROR(ENOSYS)
                                               : av_seek_frame(input->format, index, stamp, AVSEEK_FLAG_BACKWARD);
    if (code >= 0)
        input->clock.any = false;
    return code;
}
