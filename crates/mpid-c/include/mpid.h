/* Keys and values on MPI: programs of O tasks, which send pairs, and A tasks, which receive them.
 *
 *     MPI_D_Init(&argc, &argv);
 *     while (MPI_D_Next_task()) {
 *         if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL)
 *             MPI_D_Send(key, key_bytes, value, value_bytes);        any number of times
 *         else
 *             while (MPI_D_Recv(&key, &key_bytes, &value, &value_bytes) == MPI_D_SUCCESS) ...
 *     }
 *     return MPI_D_Finalize();
 *
 * A program is started alone, or on ranks by mpirun, srun or mpidrun; it does not call MPI itself. Tasks are scheduled onto the
 * ranks: each rank runs its loop body once for every task that it is given, first O tasks, then A tasks. All functions are
 * called on one thread, that of MPI_D_Init, and none of them by a combiner, a partitioner or a comparator: MPI_D_ERR_USAGE. (What returns
 * no error returns 0 then, or does nothing; MPI_D_Fail and MPI_D_Error_message may be called.) The environment variables HARRIER_MPID_* set the knobs;
 * see the README.
 *
 * Rounds over what stays in memory (mode MPI_D_ITERATION, mpidrun -mode ITER): A tasks keep pairs, of which the tasks of their number in the
 * next round begin, on the same rank. examples/pagerank.c is a whole program.
 *
 *     MPI_D_Set_mode(MPI_D_ITERATION);
 *     MPI_D_Init(&argc, &argv);
 *     do {
 *         while (MPI_D_Next_task()) ...                 in round 0, O tasks read the input; later, MPI_D_Kept and MPI_D_Send.
 *                                                       A tasks: MPI_D_Recv and MPI_D_Keep
 *     } while (MPI_D_Sum(&change, 1) == MPI_D_SUCCESS && change > enough && MPI_D_Next_round());
 *     return MPI_D_Finalize();
 *
 * Streams in windows that follow one another (mode MPI_D_STREAMING, mpidrun -mode STREAM): every pair has a time, and an A task is a window,
 * which comes as soon as all O tasks have said that they are past it. A rank comes back to its O task until that has ended its input,
 * and in between to A tasks: so the loop's body reads a piece of the input, not all of it. examples/windows.c is a whole program.
 *
 *     MPI_D_Set_mode(MPI_D_STREAMING), MPI_D_Set_window(60);
 *     MPI_D_Init(&argc, &argv);
 *     while (MPI_D_Next_task()) {
 *         if (MPI_D_COMM_BIPARTITE_O != MPI_D_COMM_NULL) {
 *             if (there is a piece) MPI_D_Advance(time), MPI_D_Send_at(time, key, key_bytes, value, value_bytes);
 *             else MPI_D_End_input();
 *         } else
 *             MPI_D_Window(&begin, &end) and MPI_D_Recv ...
 *     }
 *     return MPI_D_Finalize();
 *
 * A program that was started for another mode than its own is refused by MPI_D_Init. Rounds and streams have no checkpoint.
 *
 * Functions return MPI_D_SUCCESS or an error; MPI_D_Error_message then says more. After an error of a task the program goes on to
 * MPI_D_Finalize, which returns the job's error, the same on every rank. A program that leaves the loop before MPI_D_Next_task has returned 0
 * has not done its tasks: MPI_D_Finalize, or MPI_D_Next_round, is then an error on every rank, too, as pairs are missing. One that ends
 * without MPI_D_Finalize has failed: it says so on stderr, with why its job failed, and ends with status 1 instead of 0; the other ranks lose
 * it. What is wrong in the library itself is an error of the job, too: it does not end the process.
 *
 * A process joins its ranks once: after MPI_D_Finalize another MPI_D_Init begins another job alone, and is MPI_D_ERR_RANKS on ranks. */

#ifndef MPID_H
#define MPID_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MPI_D_SUCCESS 0
/* An A task has no more pairs. */
#define MPI_D_END 1
/* A call that cannot be here: before MPI_D_Init, in another mode, by a task of the other kind or one that has ended its input, or by a function
 * that the library has called; or null for something that has bytes. The job goes on. */
#define MPI_D_ERR_USAGE 2
/* The job has failed, here or on another rank, or could not begin. */
#define MPI_D_ERR_JOB 3
/* The ranks could not meet, or have parted, or one is lost. */
#define MPI_D_ERR_RANKS 4
/* A pair of a window that the O task has said to be past: it was counted, and left out. */
#define MPI_D_LATE 5

typedef int MPI_D_Comm;

#define MPI_D_COMM_NULL 0
/* The O tasks, in an O task; else MPI_D_COMM_NULL. */
#define MPI_D_COMM_BIPARTITE_O (MPI_D_Comm_bipartite(0))
/* The A tasks, in an A task; else MPI_D_COMM_NULL. */
#define MPI_D_COMM_BIPARTITE_A (MPI_D_Comm_bipartite(1))

MPI_D_Comm MPI_D_Comm_bipartite(int a_side);

/* How A tasks get their pairs. */
#define MPI_D_PLAIN 0
#define MPI_D_GROUPED 1
#define MPI_D_SORTED 2

/* The three kinds of functions that the library calls, on several threads at a time. They call no function of this library, which does
 * nothing but say so (above), but MPI_D_Fail: the job then fails with that message, whatever they return. They throw nothing: an exception of
 * C++ that leaves one ends the process. */

/* What a combiner returns for two values that it accepts, but whose sum, or whatever it makes of them, is none. */
#define MPI_D_OUT_OF_RANGE (-2)

/* Writes what two values of a key are together over the first one, and returns how many bytes that has; at most `room` of them.
 * Returns MPI_D_OUT_OF_RANGE, or -1 for a value that it does not accept: the job fails. It is asked to join each of the two with itself
 * before, so that the error names the record of the one that is to blame. Associative and commutative. */
typedef int64_t (*MPI_D_Combiner)(const void *key, size_t key_bytes, void *held, size_t held_bytes, size_t room,
                                  const void *value, size_t value_bytes);
/* The A task of a key, less than `tasks`. */
typedef size_t (*MPI_D_Partitioner)(const void *key, size_t key_bytes, size_t tasks);
/* Less than, equal to, or greater than 0 as `left` is before, like or after `right`. */
typedef int (*MPI_D_Comparator)(const void *left, size_t left_bytes, const void *right, size_t right_bytes);

/* What a program is. */
#define MPI_D_COMMON 0
#define MPI_D_ITERATION 1
#define MPI_D_STREAMING 2

/* What the program is, before MPI_D_Init; and how wide the windows of a stream are, in the unit of its times. These functions and those
 * below return nothing: a mode or an arrangement that there is not is an error of the next MPI_D_Init, or MPI_D_Next_round, on every rank; what is
 * set too late is one of the job, so that MPI_D_Next_task returns 0 and MPI_D_Finalize the error. MPI_D_Error_message says it at once. */
void MPI_D_Set_mode(int mode);
void MPI_D_Set_window(uint64_t width);

/* What the job is. Before MPI_D_Init, or before MPI_D_Next_round for that round and later ones; the same on every rank. */
void MPI_D_Set_arrangement(int arrangement);
void MPI_D_Set_combiner(MPI_D_Combiner combiner);
void MPI_D_Set_partitioner(MPI_D_Partitioner partitioner);
void MPI_D_Set_comparator(MPI_D_Comparator comparator);
/* Adds up values that are int64_t in the machine's byte order. A sum that is none is an error of the job. */
extern int64_t MPI_D_Sum_int64(const void *key, size_t key_bytes, void *held, size_t held_bytes, size_t room,
                               const void *value, size_t value_bytes);
/* Adds up values that are double in the machine's byte order. Pairs come in any order, on which the last digits of a sum depend. */
extern int64_t MPI_D_Sum_double(const void *key, size_t key_bytes, void *held, size_t held_bytes, size_t room,
                                const void *value, size_t value_bytes);

/* Joins the ranks, and begins the job. Collective; on ranks once in a process. The arguments may be null; they are left as they are. */
int MPI_D_Init(int *argc, char ***argv);

/* Ends the current task, and begins the next one of this rank. Returns 1, or 0 when there is none left or the job has failed, or there is no job:
 * MPI_D_Error_message then says that MPI_D_Init was not called. */
int MPI_D_Next_task(void);

/* The number of the current task, and how many there are. */
int MPI_D_Comm_rank(MPI_D_Comm comm, int *rank);
int MPI_D_Comm_size(MPI_D_Comm comm, int *size);

/* Sends a pair from an O task. Returns at once, unless the send queue is full. Bytes are copied. */
int MPI_D_Send(const void *key, size_t key_bytes, const void *value, size_t value_bytes);

/* Sends `pairs` pairs whose keys all have `key_bytes`, one behind the other, and whose values all have `value_bytes`. */
int MPI_D_Send_many(size_t pairs, const void *keys, size_t key_bytes, const void *values, size_t value_bytes);

/* Say what the current O task reads from now on, such as a file, and where in it the task is, such as a byte or a line: what an error of
 * the task then names as the place of its record. MPI_D_At costs next to nothing, and is there to be called for every record.
 * `source` is a text that ends with a zero, and is copied. */
int MPI_D_Reads(const char *source);
int MPI_D_At(uint64_t position);

/* Input. -------------------------------------------------------------------------------------------------------------------------- */
/* Which part of an input is the current O task's. All tasks together have each byte once, whatever their number:
 *
 *     MPI_D_Splits(paths, count, 0);
 *     while (MPI_D_Next_split(NULL, NULL, NULL) == MPI_D_SUCCESS)
 *         while (MPI_D_Next_line(&line, &bytes, NULL) == MPI_D_SUCCESS) ...
 *
 * What cannot be read fails the task, and the job with it: MPI_D_ERR_JOB. Errors of a task name the file and where its line begins, without MPI_D_Reads and
 * MPI_D_At. */

/* Gives the O task its share of `count` files, and of all files in folders: they are cut into splits of about `split_bytes` bytes, which are dealt to
 * the tasks in turn. 0: of 16 MiB, or of less where tasks would have nothing. A named pipe is one split. The same on every rank. In a stream it is
 * called once, as the share is kept until the O task has ended. */
int MPI_D_Splits(const char *const *paths, size_t count, uint64_t split_bytes);

/* The next split of the O task: a file, and its bytes from `*begin` to before `*end`, or 0 and 2^64-1 of a pipe; or MPI_D_END. Who reads records
 * of one size begins at the first one that begins in it. The name stays until the next MPI_D_Next_split. */
int MPI_D_Next_split(const char **path, uint64_t *begin, uint64_t *end);

/* The next line that begins in the split, without its end (which may be "\r\n") and without a zero behind it, and where it begins in the file; or MPI_D_END.
 * A line that goes beyond the split is whole, and is of the split in which it begins. At most 1 GiB. What the pointer points to stays until the next
 * call, and no longer than the task. */
int MPI_D_Next_line(const void **line, size_t *bytes, uint64_t *position);

/* The O task's part of a range of bytes, rows or whatever is counted, from `*own_begin` to before `*own_end`. */
int MPI_D_Part(uint64_t begin, uint64_t end, uint64_t *own_begin, uint64_t *own_end);

/* The next pair of an A task, or MPI_D_END. What the pointers point to stays until the next MPI_D_Recv or MPI_D_Recv_many, and no longer
 * than the task: MPI_D_Next_task and MPI_D_Finalize free it, too. */
int MPI_D_Recv(const void **key, size_t *key_bytes, const void **value, size_t *value_bytes);

/* Up to `pairs` pairs of an A task whose keys and values have these sizes, into arrays. `*received` is how many there were; 0 at the
 * end. A pair of another size is an error. */
int MPI_D_Recv_many(size_t pairs, void *keys, size_t key_bytes, void *values, size_t value_bytes, size_t *received);

/* Rounds. ------------------------------------------------------------------------------------------------------------------------- */

/* Keeps a pair of an A task in memory, where the O and A tasks of its number get it in later rounds. What a task keeps takes the place of
 * what was kept before; that of a task that keeps nothing stays. Bytes are copied, and nothing bounds how many. */
int MPI_D_Keep(const void *key, size_t key_bytes, const void *value, size_t value_bytes);

/* The next of the pairs that were kept for the task before it began, in their order, or MPI_D_END, as always in the first round; O and A tasks. What the pointers point to stays
 * until the task ends. An error of an O task names the pair's place among them, unless the task says with MPI_D_Reads what it reads. */
int MPI_D_Kept(const void **key, size_t *key_bytes, const void **value, size_t *value_bytes);

/* Makes of each number the sum of those of all ranks, the same on every rank. Collective, when MPI_D_Next_task has returned 0. An error, on
 * every rank, if the round has failed. */
int MPI_D_Sum(double *numbers, size_t count);

/* Ends the round and begins another one, of as many O tasks as A tasks, which are as many as before. Collective, when MPI_D_Next_task has
 * returned 0; decided by what is the same on all ranks. Returns 1, or 0 when the job has failed. */
int MPI_D_Next_round(void);

/* The number of the round, from 0. */
uint64_t MPI_D_Round(void);

/* Streams. ------------------------------------------------------------------------------------------------------------------------ */
/* There are at most as many O tasks as ranks, and as many if nobody says: all inputs are read at the same time. */

/* Sends a pair of this time from an O task, as MPI_D_Send; or MPI_D_LATE. */
int MPI_D_Send_at(uint64_t time, const void *key, size_t key_bytes, const void *value, size_t value_bytes);

/* Says that the O task sends nothing more of a time before this. An input that stands still holds up the windows of all, so it should say
 * this even without pairs; and a loop body that waits for its input holds up the windows of its rank. */
int MPI_D_Advance(uint64_t time);

/* The O task sends nothing more, and is not come back to. MPI_D_Send_at and MPI_D_Advance are MPI_D_ERR_USAGE after it. */
int MPI_D_End_input(void);

/* The window of an A task: times from `*begin` to before `*end`; the end of the last window is 2^64-1, which belongs to it. */
int MPI_D_Window(uint64_t *begin, uint64_t *end);

/* The current task has failed, and the job with it. By a combiner or a partitioner: the error names the record; by a comparator, the A task. */
int MPI_D_Fail(const char *message);

/* Ends the job, and leaves the ranks. Collective, when MPI_D_Next_task has returned 0. Returns the job's error; also that of a rank on which
 * MPI_D_Next_task had not, whose tasks are not done. */
int MPI_D_Finalize(void);

/* What the last error was; an empty text if there was none. Stays until the next call. May be asked by any function on any thread, and tells of
 * errors on that thread. */
const char *MPI_D_Error_message(void);

#ifdef __cplusplus
}
#endif

#endif
