-- Sends the requests of a file, a line each: method, path. Arguments: the file, then "once" to
-- stop when each was answered, or "cycle" to begin again until the time is up.

local requests, sent, answered = {}, 0, 0
local once, checked = false, false

function init(args)
  for line in io.lines(args[1]) do
    local method, path = line:match("^(%S+) (%S+)$")
    requests[#requests + 1] = wrk.format(method, path, nil, method == "POST" and "" or nil)
  end
  once = args[2] == "once"
  if not once then
    response = nil -- reading every answer costs time that the server should have
  end
end

function request()
  if not checked then
    checked = true
    return requests[1] -- wrk asks for one before it begins, and does not send it
  end
  if once and sent == #requests then
    return "" -- nothing is sent and the connection stays idle
  end
  sent = sent + 1
  return requests[(sent - 1) % #requests + 1]
end

function response()
  answered = answered + 1
  if answered == #requests then
    wrk.thread:stop()
    -- wrk itself sleeps until its time is up, unless it is interrupted.
    local ffi = require("ffi")
    ffi.cdef("int getpid(void); int kill(int, int);")
    ffi.C.kill(ffi.C.getpid(), 2)
  end
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "seconds": %.6f, "bytes": %d, "failed": %d, "p50": %.6f, "p99": %.6f}\n',
    summary.requests, summary.duration / 1e6, summary.bytes,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    latency:percentile(50) / 1e6, latency:percentile(99) / 1e6))
end
