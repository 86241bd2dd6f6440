/* Has its process exit when it gets SIGUSR2: by exit(), with status 0, on a thread that knows nothing of the others, as any library may.
 * What is registered with atexit runs while statements still do, and MPI is not finalized. Preloaded into the ranks of Open MPI's
 * launcher; in the launcher itself it does nothing.
 */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>

static sem_t asked;

static void ask(int number) {
    (void)number;
    sem_post(&asked);
}

static void *wait_and_exit(void *nothing) {
    (void)nothing;
    while (sem_wait(&asked) != 0) continue;
    exit(0);
}

__attribute__((constructor)) static void begin(void) {
    if (!getenv("OMPI_COMM_WORLD_RANK")) return;
    pthread_t thread;
    struct sigaction action = {.sa_handler = ask, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    if (sem_init(&asked, 0, 0) != 0 || pthread_create(&thread, NULL, wait_and_exit, NULL) != 0 ||
        sigaction(SIGUSR2, &action, NULL) != 0)
        abort();
    pthread_detach(thread);
}
