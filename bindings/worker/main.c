/* kachel-tune-worker: compiles and measures for an engine that would rather not do so itself. */
#include <stdio.h>
#include <stdlib.h>

#include "kachel.h"

int main(int argc, char** argv) {
  char* end = NULL;
  const long descriptor = argc == 2 ? strtol(argv[1], &end, 10) : -1;
  if (argc != 2 || end == argv[1] || *end != '\0' || descriptor < 0 || descriptor > 65535) {
    fprintf(
        stderr,
        "kachel-tune-worker is started by Kachel itself: set KACHEL_WORKER=kachel-tune-worker, or worker_path in the "
        "options of an engine\n");
    return 2;
  }
  kachel_error* error = NULL;
  (void)kachel_worker_serve((int32_t)descriptor, &error);
  fprintf(stderr, "kachel-tune-worker: %s\n", kachel_error_message(error));
  kachel_error_release(error);
  return 1;
}
