/* How often each key occurs in windows of time: mpirun -n 2 windows WIDTH STREAM... of lines with a time, a tab and a key, in the order of
 * their times, prints the begin of every window with its keys, as soon as all streams are past it. A stream is a file or a named pipe. */
#include <inttypes.h>
#include <mpid.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads one line of the stream of this rank. Returns whether more may come. */
static int read_event(int argc, char **argv) {
    static FILE *stream;
    static uint64_t number;
    char line[4096];
    uint64_t time;
    int rank, size, key_at = 0;
    MPI_D_Comm_rank(MPI_D_COMM_BIPARTITE_O, &rank), MPI_D_Comm_size(MPI_D_COMM_BIPARTITE_O, &size);
    if (argc - 2 > size) return MPI_D_Fail("more streams than ranks"), 0;
    if (rank + 2 >= argc) return 0;
    if (stream == NULL) {
        MPI_D_Reads(argv[rank + 2]); /* Errors name it, and the line. */
        stream = fopen(argv[rank + 2], "r");
        if (stream == NULL) return MPI_D_Fail("a stream cannot be read"), 0;
    }
    if (fgets(line, sizeof line, stream) == NULL) return fclose(stream), 0;
    MPI_D_At(++number);
    if (sscanf(line, "%" SCNu64 "%*1[\t]%n", &time, &key_at) != 1 || key_at == 0)
        return MPI_D_Fail("an event is a time and a key with a tab between them"), 0;
    MPI_D_Advance(time);
    MPI_D_Send_at(time, line + key_at, strcspn(line + key_at, "\n"), &(int64_t){1}, sizeof(int64_t));
    return 1;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* Other ranks print, too: in whole lines, and at once. */
    MPI_D_Set_mode(MPI_D_STREAMING), MPI_D_Set_window(argc > 1 ? strtoull(argv[1], NULL, 10) : 0);
    MPI_D_Set_combiner(MPI_D_Sum_int64);
    if (MPI_D_Init(&argc, &argv) != MPI_D_SUCCESS) fprintf(stderr, "%s\n", MPI_D_Error_message());
    while (MPI_D_Next_task()) {
        if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL) {
            if (!read_event(argc, argv)) MPI_D_End_input();
        } else {
            const void *key, *value;
            size_t key_bytes, value_bytes;
            uint64_t begin;
            MPI_D_Window(&begin, NULL);
            for (int64_t count; MPI_D_Recv(&key, &key_bytes, &value, &value_bytes) == MPI_D_SUCCESS;)
                printf("%" PRIu64 "\t%.*s\t%" PRId64 "\n", begin, (int)key_bytes, (const char *)key, *(int64_t *)memcpy(&count, value, 8));
        }
    }
    return MPI_D_Finalize();
}
