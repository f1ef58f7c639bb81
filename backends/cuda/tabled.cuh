// What has too little repetition for loops is a table of instructions: a row is one, and what it means depends on its kind.
// Between GROUP and what follows stand messages that are taken side by side, and those that are passed on with them.
enum { POST, SETTLE, GROUP, TAKE, TAKE_REDUCE, PASS, COPY, REDUCE, RECORD, WAIT };

__device__ void follow(Lane& lane, const int (*row)[12], const int (*end)[12]) {
    for (; row < end; ++row) {
        const int* r = *row;
        switch (r[0]) {
            case POST: lane.post(r[1], r[2], r[3]); break;
            case SETTLE: lane.settle(r[1]); break;
            case COPY: lane.copy({r[4], r[5]}, {r[6], r[7]}, r[10], r[11]); break;
            case REDUCE: lane.reduce({r[4], r[5]}, {r[6], r[7]}, r[10], r[11]); break;
            case RECORD: lane.record(r[1]); break;
            case WAIT: lane.wait(r[1]); break;
            case GROUP:
                for (int p = 0; p < lane.slices(r[2]); ++p)
                    for (int k = 1; k <= r[1]; ++k) {
                        const int* m = row[k];
                        if (m[0] == TAKE) lane.take(m[1], m[2], m[3], p, {m[4], m[5]}, {m[6], m[7]}, m[10], m[11]);
                        if (m[0] == TAKE_REDUCE)
                            lane.take_reduce(m[1], m[2], m[3], p, {m[4], m[5]}, {m[6], m[7]}, {m[8], m[9]}, m[10], m[11]);
                        if (m[0] == PASS) lane.pass(m[1], m[2], m[3], p, m[10]);
                    }
                row += r[1];
        }
    }
}
