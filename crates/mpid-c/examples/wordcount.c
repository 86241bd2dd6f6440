/* WordCount: mpirun -n 2 wordcount FILE... prints every word with how often it occurs. */
#include <ctype.h>
#include <mpid.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0), MPI_D_Set_combiner(MPI_D_Sum_int64); /* Other ranks print, too: in whole lines. */
    if (MPI_D_Init(&argc, &argv) != MPI_D_SUCCESS) fprintf(stderr, "%s\n", MPI_D_Error_message());
    while (MPI_D_Next_task()) {
        if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL) { /* Each O task reads its share of the files, however few and large they are. */
            size_t bytes;
            MPI_D_Splits((const char *const *)argv + 1, (size_t)argc - 1, 0);
            for (const void *line; MPI_D_Next_split(NULL, NULL, NULL) == MPI_D_SUCCESS;)
                while (MPI_D_Next_line(&line, &bytes, NULL) == MPI_D_SUCCESS)
                    for (const char *at = line, *end = at + bytes; at < end;) {
                        const char *word = at;
                        while (at < end && !isspace((unsigned char)*at)) at++;
                        if (at > word) MPI_D_Send(word, (size_t)(at - word), &(int64_t){1}, sizeof(int64_t));
                        else at++;
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
