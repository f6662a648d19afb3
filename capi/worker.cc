#include <fcntl.h>

#include "capi/boundary.h"
#include "runtime/engine/serve/serve.h"

using namespace kachel;

kachel_status kachel_worker_serve(int32_t descriptor, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (fcntl(descriptor, F_GETFD) < 0)
      return invalid("`descriptor` is not open; a worker is started by an engine, which says which one it is");
    return runtime::serve_host(descriptor);
  });
}
