/* WordCount: mpirun -n 2 wordcount FILE... prints every word with how often it occurs. */
#include <mpid.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0), MPI_D_Set_combiner(MPI_D_Sum_int64); /* Other ranks print, too: in whole lines. */
    if (MPI_D_Init(&argc, &argv) != MPI_D_SUCCESS) fprintf(stderr, "%s\n", MPI_D_Error_message());
    while (MPI_D_Next_task()) {
        if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL) { /* Each O task reads its share of the files. */
            int rank, size;
            MPI_D_Comm_rank(MPI_D_COMM_BIPARTITE_O, &rank), MPI_D_Comm_size(MPI_D_COMM_BIPARTITE_O, &size);
            for (int at = rank + 1; at < argc; at += size) {
                char word[4096];
                MPI_D_Reads(argv[at]); /* Errors name it. */
                FILE *text = fopen(argv[at], "r");
                if (text == NULL) MPI_D_Fail("a file cannot be read");
                while (text != NULL && fscanf(text, "%4095s", word) == 1)
                    if (MPI_D_Send(word, strlen(word), &(int64_t){1}, sizeof(int64_t)) != MPI_D_SUCCESS) break;
                if (text != NULL) fclose(text);
            }
        } else {
            const void *word, *value;
            size_t word_bytes, value_bytes;
            for (int64_t count; MPI_D_Recv(&word, &word_bytes, &value, &value_bytes) == MPI_D_SUCCESS;)
                printf("%.*s\t%lld\n", (int)word_bytes, (char *)word, (long long)*(int64_t *)memcpy(&count, value, 8));
        }
    }
    return MPI_D_Finalize();
}
