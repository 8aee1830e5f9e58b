-- Sends each request of a file once and then stops. Every line of the file is a method and a path.

local requests, sent, received = {}, 0, 0
local checked = false

function init(args)
  for line in io.lines(args[1]) do
    local method, path = line:match("^(%S+) (%S+)$")
    requests[#requests + 1] = wrk.format(method, path, nil, method == "POST" and "" or nil)
  end
end

function request()
  if not checked then
    -- wrk calls this once before it starts, and does not send the result.
    checked = true
    return requests[1]
  end
  if sent == #requests then
    -- Nothing is sent, and the connection stays idle.
    return ""
  end
  sent = sent + 1
  return requests[sent]
end

function response()
  received = received + 1
  if received == #requests then
    wrk.thread:stop()
    -- The main thread of wrk sleeps until its time is up, unless it is interrupted.
    local ffi = require("ffi")
    ffi.cdef("int getpid(void); int kill(int, int);")
    ffi.C.kill(ffi.C.getpid(), 2)
  end
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format('\n{"seconds": %.6f, "succeeded": %d}\n',
    summary.duration / 1e6, summary.requests - failed))
end
